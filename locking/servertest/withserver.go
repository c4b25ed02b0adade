// SPDX-License-Identifier: MIT

package servertest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// WithServer makes a testing.M, for TestMain, that starts servers before m, the tests of a package, and
// stops them afterwards:
//
//	goleak.VerifyTestMain(servertest.WithServer(m, func(t testing.TB) { _, dsn = servertest.StartMariaDB(t, ready) }))
func WithServer(m interface{ Run() int }, start func(t testing.TB)) interface{ Run() int } {
	return withServer{m, start}
}

type withServer struct {
	tests interface{ Run() int }
	start func(t testing.TB)
}

func (w withServer) Run() (code int) {
	t := &mainTB{}
	defer t.end()
	w.start(t)
	code = w.tests.Run()
	if t.Failed() && code == 0 {
		code = 1 // a server has died
	}
	return code
}

// mainTB is the testing.TB of a server that TestMain starts. It has the methods that a Server calls.
type mainTB struct {
	testing.TB // nil

	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

func (t *mainTB) Helper()                           {}
func (t *mainTB) Name() string                      { return "TestMain" }
func (t *mainTB) Logf(format string, args ...any)   { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (t *mainTB) Errorf(format string, args ...any) { t.Error(fmt.Sprintf(format, args...)) }
func (t *mainTB) Fatal(args ...any)                 { t.Error(args...); t.FailNow() }
func (t *mainTB) Fatalf(format string, args ...any) { t.Errorf(format, args...); t.FailNow() }

func (t *mainTB) Error(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = true
}

// FailNow ends the process: there are no tests to continue with.
func (t *mainTB) FailNow() {
	t.end()
	os.Exit(1)
}

func (t *mainTB) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

func (t *mainTB) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// TempDir makes a folder inside of another, as that of testing.T: StartCluster opens both.
func (t *mainTB) TempDir() string {
	above, err := os.MkdirTemp("", "TestMain")
	dir := filepath.Join(above, "001")
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(above) })
	return dir
}

// end calls the cleanups, the last first.
func (t *mainTB) end() {
	t.mu.Lock()
	cleanups := t.cleanups
	t.cleanups = nil
	t.mu.Unlock()
	for i := len(cleanups) - 1; i >= 0; i-- {
		cleanups[i]()
	}
}
