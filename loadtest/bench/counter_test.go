// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"
)

// counter counts the holders of a key, in a file that processes map into their memory. Its addition is not atomic: only the
// lock excludes others, and two holders at once lose a count.
type counter struct{ n *int64 }

// newCounter returns the file of a counter. At the end of the benchmark it must have counted each of the holders.
func newCounter(b *testing.B, holders *int64) (file string) {
	file = filepath.Join(b.TempDir(), "counter")
	must(b, os.WriteFile(file, make([]byte, unsafe.Sizeof(*holders)), 0o600))
	b.Cleanup(func() {
		c, err := openCounter(file)
		must(b, err)
		if !b.Failed() && *c.n != *holders {
			b.Errorf("%d holders, but %d were counted: two held the key at once", *holders, *c.n)
		}
	})
	return file
}

func openCounter(file string) (counter, error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return counter{}, err
	}
	defer f.Close()
	memory, err := syscall.Mmap(int(f.Fd()), 0, int(unsafe.Sizeof(int64(0))), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return counter{}, fmt.Errorf("map %s: %w", file, err)
	}
	return counter{(*int64)(unsafe.Pointer(&memory[0]))}, nil
}

func (c counter) add() { *c.n++ }
