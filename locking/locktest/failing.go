// SPDX-License-Identifier: MIT

package locktest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Failing runs the named checks of the suite (all, if none is named) on a variant that is
// broken on purpose. It returns the messages of the failing checks by name, and under
// "Promises" what is wrong with p. t itself fails only if a named check does not exist.
func Failing(t testing.TB, open Open, p Promises, names ...string) map[string]string {
	t.Helper()
	chosen := choose(t, checks(open(t), p), names)
	var mu sync.Mutex
	failures := map[string]string{}
	promising := check{"Promises", func(s *suite) { validate(s, s.Backend, s.Promises) }}
	if message := record(t, open, p, promising); message != "" {
		failures[promising.name] = message
	}
	SideBySide(atATime, chosen, func(c check) {
		if message := record(t, open, p, c); message != "" {
			mu.Lock()
			defer mu.Unlock()
			failures[c.name] = message
		}
	})
	return failures
}

// record runs one check and returns its failure messages; empty: it passed.
func record(t testing.TB, open Open, p Promises, c check) string {
	return recorded(t, func(r testing.TB) { c.run(&suite{TB: r, Backend: open(r), Promises: p}) })
}

// recorded runs f and returns its failure messages.
func recorded(t testing.TB, f func(testing.TB)) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() { // a separate goroutine, because Fatal ends it
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v", p)
			}
		}()
		f(r)
	}()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.messages, "\n")
}

// recorder is a testing.TB that records failures. All other methods (Cleanup, TempDir, …)
// are those of the real one.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	messages []string
}

func (r *recorder) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, strings.TrimSpace(text))
}

func (r *recorder) Helper()                   {}
func (r *recorder) Log(...any)                {}
func (r *recorder) Logf(string, ...any)       {}
func (r *recorder) Fail()                     { r.note("failed") }
func (r *recorder) FailNow()                  { r.Fail(); runtime.Goexit() }
func (r *recorder) Error(args ...any)         { r.note(fmt.Sprintln(args...)) }
func (r *recorder) Errorf(f string, a ...any) { r.note(fmt.Sprintf(f, a...)) }
func (r *recorder) Fatal(args ...any)         { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(f string, a ...any) { r.Errorf(f, a...); runtime.Goexit() }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.messages) > 0
}
