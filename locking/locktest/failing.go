package locktest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Failing runs the named checks of the suite (all, if none is named) on a
// variant that is broken on purpose, and returns what the failing ones said, by
// name of check, and under "Promises" what is wrong with p. t itself fails only if
// there is no check of such a name.
func Failing(t testing.TB, open Open, p Promises, names ...string) map[string]string {
	t.Helper()
	chosen := checks(open(t), p)
	if len(names) > 0 {
		chosen = slices.DeleteFunc(chosen, func(c check) bool { return !slices.Contains(names, c.name) })
		if len(chosen) != len(names) {
			t.Fatalf("locktest: %q: not all of these are checks under %+v", names, p)
		}
	}
	var mu sync.Mutex
	failures := map[string]string{}
	promising := check{"Promises", func(s *suite) { validate(s, s.Backend, s.Promises) }}
	if said := record(t, open, p, promising); said != "" {
		failures[promising.name] = said
	}
	sideBySide(chosen, func(c check) {
		if said := record(t, open, p, c); said != "" {
			mu.Lock()
			defer mu.Unlock()
			failures[c.name] = said
		}
	})
	return failures
}

// record runs one check and returns what it said if it failed.
func record(t testing.TB, open Open, p Promises, c check) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() { // of its own, because Fatal ends it
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v", p)
			}
		}()
		c.run(&suite{TB: r, Backend: open(r), Promises: p})
	}()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.said, "\n")
}

// recorder is a testing.TB that keeps failures to itself. What is not about
// failing (Cleanup, TempDir, …) is the real one's.
type recorder struct {
	testing.TB
	mu   sync.Mutex
	said []string
}

func (r *recorder) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, strings.TrimSpace(text))
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
	return len(r.said) > 0
}
