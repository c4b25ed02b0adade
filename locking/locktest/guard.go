// SPDX-License-Identifier: MIT

package locktest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"shop/locking"
)

// Guards is a check of fences (pglock.Guard) whose transactions wait for each other.
type Guards struct {
	Make  func(resources ...string)           // before the first guard of a resource; nil: not needed
	Begin func() Guarded                      // on a connection of its own
	Fence func(resource string) locking.Fence // that is stored; 0: none
}

// Guarded is a transaction that guards.
type Guarded struct {
	Guard            func(resource string, fence locking.Fence) error
	Blocked          func() bool // reports whether Guard waits for another transaction
	Commit, Rollback func() error
}

// OpenGuards makes Guards for one check, in tables of its own, and cleans up with t.Cleanup.
type OpenGuards func(t testing.TB) Guards

type guardCheck struct {
	name string
	run  func(testing.TB, Guards)
}

func guardChecks() []guardCheck {
	list := []guardCheck{
		{"Guard/RefusesTheOldAndAcceptsThePresentAndTheNext", guardOrder},
		{"Guard/NeverConfusesResources", guardNames},
		{"Guard/RefusesWhatIsNoFenceOrNoName", guardInvalid},
		{"Guard/AnyInterleavingCommitsInOrderOfFences", guardInterleavings},
	}
	for _, race := range guardRaces() {
		list = append(list, guardCheck{"Guard/WaitsForTheOpenTransaction/" + race.name, race.run})
	}
	return list
}

// RunGuards checks that of the transactions that guard one resource and commit, none has a fence
// smaller than one that committed before it. Each check is a subtest.
func RunGuards(t *testing.T, open OpenGuards) {
	t.Helper()
	SideBySide(atATime, guardChecks(), func(c guardCheck) {
		t.Run(c.name, func(t *testing.T) { c.run(t, open(t)) })
	})
}

// WantFailingGuards fails t unless the named check notices that the guard is broken.
func WantFailingGuards(t *testing.T, open OpenGuards, name string) {
	t.Helper()
	for _, c := range guardChecks() {
		if c.name != name {
			continue
		}
		message := recorded(t, func(r testing.TB) { c.run(r, open(r)) })
		if message == "" {
			t.Errorf("%s did not notice", name)
		}
		t.Logf("%s: %.200s", name, message)
		return
	}
	t.Errorf("locktest: there is no check %s", name)
}

func (g Guards) prepare(resources ...string) {
	if g.Make != nil {
		g.Make(resources...)
	}
}

// write guards resource in a transaction of its own.
func (g Guards) write(resource string, fence locking.Fence) error {
	tx := g.Begin()
	if err := tx.Guard(resource, fence); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// waits returns true when Guard waits for another transaction, and false when it has answered.
func (tx Guarded) waits(t testing.TB, answered func() bool) bool {
	t.Helper()
	Eventually(t, "the guard waits", func() bool { return answered() || tx.Blocked() })
	return !answered()
}

func guardOrder(t testing.TB, g Guards) {
	const old, present, next = 5, 7, 8
	g.prepare("a", "b")
	for _, step := range []struct {
		fence locking.Fence
		want  error
	}{
		{old, nil},
		{present, nil},
		{old, locking.ErrStale}, // continues after a pause
		{present, nil},          // writes again
		{next, nil},
		{present, locking.ErrStale},
		{old, locking.ErrStale},
		{next, nil},
	} {
		if err := g.write("a", step.fence); !errors.Is(err, step.want) {
			t.Errorf("fence %d: %v, want %v", step.fence, err, step.want)
		}
	}
	if got := g.Fence("a"); got != next {
		t.Errorf("the guard remembers %d, want %d", got, next)
	}
	if err := g.write("b", old); err != nil {
		t.Errorf("another resource: %v", err)
	}
	if err := g.write("a", 1<<62); err != nil || g.Fence("a") != 1<<62 {
		t.Errorf("the greatest fences: %v, stored %d", err, g.Fence("a"))
	}
	if err := g.write("a", 1<<62-1); !errors.Is(err, locking.ErrStale) {
		t.Errorf("one less: %v, want ErrStale", err)
	}
}

// guardNames checks that names that differ in case, or in a space at the end, are different resources.
func guardNames(t testing.TB, g Guards) {
	names := []string{"a", "A", "a ", "ä", "Ä", "a/b", "a%", "{a}", strings.Repeat("x", locking.KeyMax), strings.Repeat("x", locking.KeyMax-1)}
	g.prepare(names...)
	for i, name := range names {
		if err := g.write(name, locking.Fence(100-i)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for i, name := range names {
		if got := g.Fence(name); got != locking.Fence(100-i) {
			t.Errorf("%q has the fence %d, want %d", name, got, 100-i)
		}
	}
}

// guardInvalid checks that a refused call writes nothing, and that its transaction can continue.
func guardInvalid(t testing.TB, g Guards) {
	g.prepare("a")
	tx := g.Begin()
	for _, fence := range []locking.Fence{0, -1} {
		if err := tx.Guard("a", fence); err == nil || errors.Is(err, locking.ErrStale) {
			t.Errorf("fence %d: %v, want an error that is not ErrStale", fence, err)
		}
	}
	for _, resource := range []string{"", "a\x00", "\xff", strings.Repeat("x", locking.KeyMax+1)} {
		if err := tx.Guard(resource, 1); !errors.Is(err, locking.ErrKey) {
			t.Errorf("resource %.8q: %v, want ErrKey", resource, err)
		}
	}
	if got := g.Fence("a"); got != 0 {
		t.Errorf("the refusals have stored the fence %d", got)
	}
	if err := errors.Join(tx.Guard("a", 1), tx.Commit()); err != nil {
		t.Errorf("the refusals have ended the transaction: %v", err)
	}
}

// guardRace is two transactions, of which the second guards while the first is open.
type guardRace struct {
	name                  string
	before, first, second locking.Fence
	rollback              bool // of the first
	want                  error
}

func guardRaces() (list []guardRace) {
	for _, race := range []guardRace{
		{"EqualThenNewer", 5, 5, 6, false, nil},
		{"NewerThenEqualToTheOld", 5, 6, 5, false, locking.ErrStale},
		{"EqualThenEqual", 5, 5, 5, false, nil},
		{"NewerRollsBackAndOldPasses", 5, 6, 5, true, nil},
	} {
		list = append(list, race)
		race.name, race.before = race.name+"/FirstOfAll", 0
		list = append(list, race)
	}
	return list
}

func (r guardRace) run(t testing.TB, g Guards) {
	g.prepare("a")
	if r.before > 0 {
		if err := g.write("a", r.before); err != nil {
			t.Fatal(err)
		}
	}
	first, second := g.Begin(), g.Begin()
	if err := first.Guard("a", r.first); err != nil {
		t.Fatal(err)
	}
	decided := make(chan error, 1)
	go func() { decided <- second.Guard("a", r.second) }()
	if !second.waits(t, func() bool { return len(decided) > 0 }) {
		t.Fatalf("the second did not wait for the end of the first: %v", <-decided)
	}
	end := first.Commit
	if r.rollback {
		end = first.Rollback
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-decided:
		if !errors.Is(err, r.want) {
			t.Errorf("the second: %v, want %v", err, r.want)
		}
	case <-time.After(deadline):
		t.Fatal("the second still waits after the end of the first")
	}
}
