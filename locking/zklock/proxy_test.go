// SPDX-License-Identifier: MIT

package zklock

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"shop/locking/servertest"
)

// proxy disturbs the requests of a Store. It leaves handshakes and pings alone, so that the
// client can always connect.
type proxy struct {
	*servertest.Faults
	writes atomic.Bool // only those that change something
}

// The operations of ZooKeeper's protocol that the tests name.
const opCreate, opDelete, opPing, opMulti = 1, 2, 11, 14

func newProxy(t testing.TB, addr string) *proxy {
	t.Helper()
	p := &proxy{}
	p.Faults = servertest.NewFaults(t, addr, func(requests []byte) (disturbed bool) {
		for len(requests) >= 12 { // several may arrive at once: length, number of the request, operation
			length, number, op := binary.BigEndian.Uint32(requests), binary.BigEndian.Uint32(requests[4:]), int32(binary.BigEndian.Uint32(requests[8:]))
			handshake := number == 0
			write := op == opCreate || op == opDelete || op == opMulti
			disturbed = disturbed || !handshake && op != opPing && op > 0 && (write || !p.writes.Load())
			requests = requests[min(len(requests), 4+int(length)):]
		}
		return disturbed
	})
	return p
}

// lose loses the next n answers. A single one is that of a request that changes something.
func (p *proxy) lose(n int) {
	p.writes.Store(n == 1)
	p.Lose(n)
}
