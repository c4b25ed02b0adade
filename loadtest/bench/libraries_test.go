// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// library is a lock that runs the contract of package locktest.
type library struct {
	name    string
	module  string // "": it has none
	claims  locktest.Promises
	silent  []string // the checks of the contract of which its documentation says nothing, by the first words of their names
	backend func(t testing.TB) locktest.Backend
}

// ours is the control of the report: it promises everything. wrong is the other one, which promises that too.
const ours, wrong = "shop redislock", "SETNX and DEL"

// unasked are the checks that ask nothing of a library: locking.Do, locking.Acquire or the adapter answers.
var unasked = []string{"Do/", "Keys/InvalidAreErrKey", "TTL/", "Ctx/ReturnsAtOnceWhileWaiting"}

// absent are the checks that show that a promise is not made.
var absent = []string{"Expires/Not", "Fence/None", "FIFO/Not", "Multi/Refused", "Fence/DoesNotSurviveRestart"}

// verdict is what one check said of a library.
type verdict struct {
	claimed bool
	failure string // "": it passed
}

// String is the cell of the table.
func (v verdict) String() string {
	switch {
	case v.claimed && v.failure == "":
		return "kept"
	case v.claimed:
		return "BROKEN"
	case v.failure == "":
		return "(kept)"
	}
	return "-"
}

// TestLibraries prints what each library keeps of the contract. It fails if our own lock breaks a check, or if the wrong one
// breaks none: what it says of the others is a report and no target.
func TestLibraries(t *testing.T) {
	seen := map[string]map[string]verdict{}
	var mu sync.Mutex
	locktest.SideBySide(4, libraries(), func(l library) {
		t.Run(l.name, func(t *testing.T) {
			verdicts := l.judge(t)
			mu.Lock()
			defer mu.Unlock()
			seen[l.name] = verdicts
		})
	})
	printTable(t, seen)
	if broken := broken(seen[ours]); len(broken) > 0 {
		t.Errorf("%s breaks %q: %v", ours, broken, seen[ours][broken[0]].failure)
	}
	if broken := broken(seen[wrong]); !slices.Contains(broken, "Own/ReleaseAndRenewTouchOnlyTheirOwn") {
		t.Errorf("%s breaks %q only", wrong, broken)
	}
}

// judge runs the checks.
func (l library) judge(t *testing.T) map[string]verdict {
	list := slices.DeleteFunc(locktest.Checks(l.backend(t), l.claims), func(check string) bool {
		return slices.Contains(absent, check) || slices.ContainsFunc(unasked, begins(check))
	})
	failures := locktest.Failing(t, l.backend, l.claims, list...)
	if wrong := failures["Promises"]; wrong != "" {
		t.Fatal(wrong)
	}
	all := map[string]verdict{}
	for _, check := range list {
		all[check] = verdict{!slices.ContainsFunc(l.silent, begins(check)), failures[check]}
	}
	return all
}

// begins returns a function that reports whether name begins with its argument.
func begins(name string) func(string) bool {
	return func(with string) bool { return strings.HasPrefix(name, with) }
}

func broken(of map[string]verdict) (checks []string) {
	for _, check := range slices.Sorted(maps.Keys(of)) {
		if of[check].String() == "BROKEN" {
			checks = append(checks, check)
		}
	}
	return checks
}

// printTable prints library × check, and what was seen of each check that failed.
func printTable(t *testing.T, seen map[string]map[string]verdict) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	var names, rows []string
	for _, l := range libraries() {
		if seen[l.name] == nil {
			continue // -run named others
		}
		names = append(names, l.name)
		rows = append(rows, slices.Collect(maps.Keys(seen[l.name]))...)
		version := ""
		if l.module != "" {
			version = string(regexp.MustCompile(regexp.QuoteMeta(l.module)+" v[^ \n]+").Find(mod)) + ": "
		}
		count := map[string]int{}
		for _, v := range seen[l.name] {
			count[v.String()]++
		}
		fmt.Printf("%s: %s%d kept, %d broken; not promised: %d kept, %d not\n", l.name, version, count["kept"], count["BROKEN"], count["(kept)"], count["-"])
	}
	fmt.Println()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "check\t"+strings.Join(names, "\t")+"\t")
	for _, check := range slices.Compact(slices.Sorted(slices.Values(rows))) {
		fmt.Fprint(table, check)
		for _, name := range names {
			cell := "" // it was not run
			if v, run := seen[name][check]; run {
				cell = v.String()
			}
			fmt.Fprint(table, "\t", cell)
		}
		fmt.Fprintln(table, "\t")
	}
	_ = table.Flush()
	for _, name := range names {
		for _, check := range slices.Sorted(maps.Keys(seen[name])) {
			if v := seen[name][check]; v.failure != "" {
				first, _, _ := strings.Cut(v.failure, "\n")
				fmt.Printf("\n%s, %s, %v:\n  %.300s\n", name, check, v, first)
			}
		}
	}
}

// foreign is a locking.Store of another library's lock. It repeats nothing and remembers only what the library
// has returned for each lease, so that the library answers, also for a lease that it has lost.
type foreign struct {
	take func(ctx context.Context, key string) (held, error)

	mu   sync.Mutex
	held map[string]held // by owner
}

// held is a lock that was granted.
type held struct {
	owner string
	until func() time.Time // nil: the lease has no end
	keep  func(ctx context.Context) error
	free  func(ctx context.Context) error
}

func (f *foreign) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	keys, err := locking.SortedKeys(keys)
	switch {
	case err != nil:
		return locking.Lease{}, err
	case len(keys) > 1:
		return locking.Lease{}, locking.ErrSeveralKeys
	}
	h, err := f.take(ctx, keys[0])
	if err != nil {
		return locking.Lease{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held == nil {
		f.held = map[string]held{}
	}
	f.held[h.owner] = h
	return h.lease(locking.Lease{Keys: keys, Owner: h.owner}), nil
}

func (h held) lease(l locking.Lease) locking.Lease {
	if h.until != nil {
		l.Until = h.until()
	}
	return l
}

func (f *foreign) of(l locking.Lease) (held, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h, found := f.held[l.Owner]
	return h, found
}

func (f *foreign) Renew(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	h, found := f.of(l)
	if !found {
		return l, locking.ErrLost
	}
	if err := h.keep(ctx); err != nil {
		return l, err
	}
	return h.lease(l), nil
}

func (f *foreign) Release(ctx context.Context, l locking.Lease) error {
	h, found := f.of(l)
	if !found {
		return locking.ErrLost
	}
	return h.free(ctx)
}

// as returns kind for an error that is one of those that mean it.
func as(kind, err error, means ...error) error {
	if slices.ContainsFunc(means, func(m error) bool { return errors.Is(err, m) }) {
		return fmt.Errorf("%w (%w)", kind, err)
	}
	return err
}
