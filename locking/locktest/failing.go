// SPDX-License-Identifier: MIT

package locktest

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
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

// WantFailing fails t unless each of the named checks notices that the store is broken. A check
// that does not is tried again, since a stall of the machine may hide the fault: it ends a lease that
// the fault would have kept, or loses another answer than the one that the check is about.
func WantFailing(t *testing.T, open Open, p Promises, names ...string) {
	t.Helper()
	failures := map[string]string{}
	for range lateMax {
		maps.Copy(failures, Failing(t, open, p, names...))
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return failures[name] != "" })
		if len(names) == 0 { // Failing would run all checks
			break
		}
	}
	for _, name := range names {
		t.Errorf("%s did not notice", name)
	}
	for _, name := range slices.Sorted(maps.Keys(failures)) {
		t.Logf("%s: %.200s", name, failures[name])
	}
}
