package wallet

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"shop/locking"
)

// waiting is how many stand in a line, the one who has the turn included.
func (l *lines) waiting(id uuid.UUID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at[id] == nil {
		return 0
	}
	return len(l.at[id].queue)
}

// at is a job of a client of its own at one wallet, or two.
func at(ids ...uuid.UUID) *job {
	j := &job{req: Request{Client: uuid.New()}, op: Operation{Wallet: ids[0]}}
	if len(ids) > 1 {
		j.op.To = &ids[1]
	}
	return j
}

// queue lets n wait for a wallet, one after the other, and tells in which order
// they got their turn.
func queue(t *testing.T, l *lines, id uuid.UUID, n int) <-chan int {
	t.Helper()
	turns := make(chan int, n)
	for k := range n {
		before := l.waiting(id)
		go func() {
			leave, err := l.enter(t.Context(), at(id))
			if err != nil {
				t.Error(err)
				return
			}
			turns <- k
			leave()
		}()
		for l.waiting(id) == before {
			continue
		}
	}
	return turns
}

func TestLines_FirstComeFirstServed(t *testing.T) {
	t.Parallel()
	l, id := newLines(16), uuid.New()
	leave, err := l.enter(t.Context(), at(id))
	if err != nil {
		t.Fatal(err)
	}
	turns := queue(t, l, id, 8)
	leave()
	for want := range 8 {
		if got := <-turns; got != want {
			t.Errorf("number %d had its turn as number %d", got, want)
		}
	}
}

func TestLines_AreForgottenWhenEmpty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLines(1)
		for range 3 {
			leave, err := l.enter(t.Context(), at(uuid.New(), uuid.New()))
			if err != nil {
				t.Fatal(err)
			}
			leave()
			leave() // once more does nothing
		}
		time.Sleep(2 * gap)
		synctest.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.at) != 0 {
			t.Errorf("%d lines are left", len(l.at))
		}
	})
}

// Another process takes the wallet only while this one leaves it alone.
func TestLines_LeaveAGapAfterEachRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		others bool
		run    time.Duration
	}{"alone": {false, runAlone}, "shared": {true, runShared}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const takes = 10 * time.Millisecond
				l, id := newLines(16), uuid.New()
				var gaps, turns int
				last := time.Now()
				for begin := last; time.Since(begin) < 4*c.run; {
					leave, err := l.enter(t.Context(), at(id))
					if err != nil {
						t.Fatal(err)
					}
					if turns++; turns == 1 && c.others {
						l.held([]uuid.UUID{id})
					}
					switch waited := time.Since(last); {
					case waited == gap:
						gaps++
					case waited != 0:
						t.Errorf("turn %d after %v, want none or %v", turns, waited, gap)
					}
					time.Sleep(takes)
					last = time.Now()
					leave()
				}
				if gaps != 3 {
					t.Errorf("%d gaps in 4 runs of %v, want 3", gaps, c.run)
				}
			})
		})
	}
}

// A client fills its own share of a queue. The others find room.
func TestLines_OneClientCannotFillThem(t *testing.T) {
	t.Parallel()
	l, id := newLines(8), uuid.New()
	leave, err := l.enter(t.Context(), at(id))
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	greedy := at(id)
	for n := range 2 {
		if _, err := l.join(id, greedy); err != nil {
			t.Errorf("%v for number %d", err, n)
		}
	}
	if _, err := l.join(id, greedy); !errors.Is(err, errLineFull) {
		t.Errorf("%v, want the line full for a client with a quarter of it", err)
	}
	if _, err := l.join(id, at(id)); err != nil {
		t.Errorf("%v for another client", err)
	}
	greedy.unknown = true
	if _, err := l.join(id, greedy); err != nil {
		t.Errorf("%v for a request whose commit is unknown", err)
	}
}

func TestLines_FullIsBusyAtOnce(t *testing.T) {
	t.Parallel()
	l, id, other := newLines(2), uuid.New(), uuid.New()
	leave, err := l.enter(t.Context(), at(id))
	if err != nil {
		t.Fatal(err)
	}
	turns := queue(t, l, id, 2)
	if _, err := l.enter(t.Context(), at(other, id)); !errors.Is(err, locking.ErrBusy) || !errors.Is(err, errLineFull) {
		t.Errorf("%v, want busy", err)
	}
	if n := l.waiting(other); n != 0 {
		t.Error("whoever was refused at the second wallet kept the first")
	}
	leave()
	<-turns
	<-turns
}

func TestLines_WhoeverLeavesWhileWaitingIsSkipped(t *testing.T) {
	t.Parallel()
	l, id := newLines(4), uuid.New()
	leave, err := l.enter(t.Context(), at(id))
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	left := make(chan error)
	go func() {
		_, err := l.enter(ctx, at(id))
		left <- err
	}()
	for l.waiting(id) < 2 {
		continue
	}
	turns := queue(t, l, id, 1)
	cancel(gone)
	if err := <-left; !errors.Is(err, gone) {
		t.Errorf("%v, want the cause", err)
	}
	leave()
	if got := <-turns; got != 0 {
		t.Error(got)
	}
}

// A payment waits for the second wallet with the first in its hands. Those who
// want the first wait behind it, and nobody waits in a circle.
func TestLines_TwoInOneOrderNeverWaitInACircle(t *testing.T) {
	t.Parallel()
	l := newLines(64)
	a, b := uuid.UUID{1}, uuid.UUID{2}
	done := make(chan struct{})
	const each = 200
	for _, ids := range [][]uuid.UUID{{a, b}, {a}, {b}, {a, b}} {
		go func() {
			for range each {
				leave, err := l.enter(t.Context(), at(ids...))
				if err != nil {
					t.Error(err)
				} else {
					leave()
				}
			}
			done <- struct{}{}
		}()
	}
	for range 4 {
		<-done
	}
	if n := l.waiting(a) + l.waiting(b); n != 0 {
		t.Errorf("%d are left in line", n)
	}
}

func TestOperationID_IsOneForEachKeyOfEachClient(t *testing.T) {
	t.Parallel()
	alice, bob := uuid.UUID{1}, uuid.UUID{2}
	req := Request{Client: alice, Key: "k"}
	if operationID(req) != operationID(Request{Client: alice, Key: "k", Fingerprint: [32]byte{1}}) {
		t.Error("it depends on what is asked")
	}
	for _, other := range []Request{{Client: bob, Key: "k"}, {Client: alice, Key: "K"}, {Client: alice, Key: "k "}} {
		if operationID(req) == operationID(other) {
			t.Errorf("the same for %+v", other)
		}
	}
	if v := operationID(req).Version(); v != 8 {
		t.Errorf("version %d", v)
	}
}

// Both directions wait and lock in the same order, or two payments could wait in a circle.
func TestJob_WalletsAreInOneOrderWhoeverPaysWhom(t *testing.T) {
	t.Parallel()
	for range 64 {
		a, b := uuid.New(), uuid.New()
		there := &job{op: Operation{Kind: Payment, Wallet: a, To: &b}}
		back := &job{op: Operation{Kind: Payment, Wallet: b, To: &a}}
		if !slices.Equal(there.ids(), back.ids()) {
			t.Fatalf("%v and %v", there.ids(), back.ids())
		}
	}
}
