// SPDX-License-Identifier: MIT

//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd)

package filelock

import (
	"errors"
	"os"
)

const supported = false

func flock(*os.File) error { return errors.ErrUnsupported }

func unlock(f *os.File) { _ = f.Close() }
