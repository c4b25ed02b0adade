// SPDX-License-Identifier: MIT

// Package bonustest starts bonus services for tests.
package bonustest

import (
	"net"
	"testing"

	"shop/wallet/bonus"
)

// Serve starts a bonus service that ends with the test.
func Serve(t testing.TB) *bonus.Service {
	t.Helper()
	service, err := bonus.Serve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := service.Close(); err != nil {
			t.Error(err)
		}
	})
	return service
}

// Silent returns the URL of a service that accepts connections and sends nothing.
func Silent(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return "http://" + listener.Addr().String()
}
