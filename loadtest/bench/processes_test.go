// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"

	"shop/locking/servertest"
)

// together runs n processes of this test binary in a role, and returns what each has measured. Each opens what it
// measures and says so; then all begin at once.
func together[T any](b *testing.B, n int, role string, args ...string) []T {
	b.Helper()
	type process struct {
		begin io.Closer
		out   *bufio.Reader
		wait  func() error
	}
	all, did := make([]process, n), make([]T, n)
	for i := range all {
		cmd := servertest.Process(b, role, args...)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		must(b, err)
		out, err := cmd.StdoutPipe()
		must(b, err)
		must(b, cmd.Start())
		all[i] = process{in, bufio.NewReader(out), cmd.Wait}
	}
	for _, p := range all {
		_, err := p.out.ReadString('\n')
		must(b, err)
	}
	b.ResetTimer()
	for _, p := range all {
		must(b, p.begin.Close())
	}
	for i, p := range all {
		must(b, json.NewDecoder(p.out).Decode(&did[i]))
		must(b, p.wait())
	}
	b.StopTimer()
	return did
}

// ready tells together that this process may begin, and waits for the others.
func ready() error {
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
