// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// counter counts the holders of a key, in memory that processes share. Its addition is not atomic: only the lock
// excludes others, and two holders at once lose a count.
type counter struct {
	file string
	n    *int64
}

func newCounter() (*counter, error) {
	f, err := os.CreateTemp("", "counter")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(int64(unsafe.Sizeof(int64(0)))); err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()))
	}
	return openCounter(f.Name())
}

func openCounter(file string) (*counter, error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	memory, err := syscall.Mmap(int(f.Fd()), 0, int(unsafe.Sizeof(int64(0))), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", file, err)
	}
	return &counter{file, (*int64)(unsafe.Pointer(&memory[0]))}, nil
}

func (c *counter) add() { *c.n++ }

// close removes the file. It returns an error if the counter is not what the holders say together.
func (c *counter) close(holders int64) error {
	counted := *c.n
	err := errors.Join(syscall.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(c.n)), unsafe.Sizeof(*c.n))), os.Remove(c.file))
	if counted != holders {
		err = errors.Join(err, fmt.Errorf("%d holders, but %d were counted: two held the key at once", holders, counted))
	}
	return err
}
