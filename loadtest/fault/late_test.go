package fault

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// branch is a replica of the bank: it writes through its wire, again and again.
// The lock is in the test's head: Evict and Pause let the next holder come by.
type branch struct {
	*bank
	fenced  bool
	next    *pgx.Conn
	fence   int64 // of the one that writes now
	mu      sync.Mutex
	paused  bool
	resumed int
}

// takeOver is the next holder.
func (r *branch) takeOver(ctx context.Context) error {
	r.mu.Lock()
	fence := r.fence + 1
	r.mu.Unlock()
	if !r.fenced {
		return r.bank.unfenced(ctx, r.next, 50)
	}
	passed, err := r.bank.fenced(ctx, r.next, fence, 50)
	if err == nil && !passed {
		err = errors.New("the rightful holder was refused")
	}
	return err
}

func (r *branch) Pause(int) error {
	r.paused = true
	return r.takeOver(context.Background())
}

func (r *branch) Resume(int) error {
	r.resumed++
	r.paused = false
	return nil
}

// write is one transfer after the other until ctx ends.
func (r *branch) write(ctx context.Context, conn *pgx.Conn) error {
	for ctx.Err() == nil {
		r.mu.Lock()
		r.fence += 2
		fence := r.fence
		r.mu.Unlock()
		var err error
		if r.fenced {
			_, err = r.bank.fenced(context.WithoutCancel(ctx), conn, fence, 1)
		} else {
			err = r.bank.unfenced(context.WithoutCancel(ctx), conn, 1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// strikeLate runs the fault against a branch, and returns what it recorded.
func strikeLate(t *testing.T, r *branch, over time.Duration) (records []LateRecord, seen map[string]int64) {
	t.Helper()
	w := r.bank.wire()
	r.next = r.bank.connect(r.bank.url)
	conn := r.bank.connect(w.URL())
	ctx, stop := context.WithCancel(t.Context())
	writing := beside(func() error { return r.write(ctx, conn) })
	f := LateWrite{
		Wires: []*Wire{w}, Replicas: r, TTL: 100 * time.Millisecond, URL: r.bank.url,
		Evict: func(ctx context.Context, account string) (bool, error) {
			if account != r.bank.id.String() {
				t.Errorf("account %s", account)
			}
			return true, r.takeOver(ctx)
		},
		Record: func(l LateRecord) { records = append(records, l) },
	}
	events, err := f.Strike(t.Context(), over)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if err := soon(t, "the replica", writing); err != nil {
		t.Fatal(err)
	}
	if r.paused {
		t.Error("the replica is still stopped")
	}
	return records, sum(events)
}

func sum(events []Event) map[string]int64 {
	all := map[string]int64{}
	for _, e := range events {
		for name, n := range e.Seen {
			all[name] += n
		}
	}
	return all
}

func TestLateWrite_AGuardRefusesEachInBothWays(t *testing.T) {
	r := &branch{bank: newBank(t), fenced: true}
	records, seen := strikeLate(t, r, 1500*time.Millisecond)
	if n := seen["late_writes"]; n < 4 || seen["late_refused"] != n || seen["late_committed"] != 0 || len(records) != int(n) {
		t.Fatalf("%v, %d records", seen, len(records))
	}
	for i, l := range records {
		ordered := !l.Taken.Before(l.Held) && !l.Overtaken.Before(l.Taken) && !l.Delivered.Before(l.Overtaken) && !l.Answered.Before(l.Delivered)
		if !ordered || l.NewFence != l.OldFence+1 || l.Answer != "UPDATE 0" || !l.Refused || l.Committed {
			t.Errorf("%d: %+v", i, l)
		}
		if stopped := i%2 == 1; stopped != (l.Way == Stopped) && i < 4 || (l.Way == Stopped) == l.Resumed.IsZero() {
			t.Errorf("%d: %s, resumed %v", i, l.Way, l.Resumed)
		}
	}
	if r.resumed == 0 {
		t.Error("nobody was stopped")
	}
}

func TestLateWrite_WithoutAGuardEachPutsBackWhatWas(t *testing.T) {
	r := &branch{bank: newBank(t)}
	records, seen := strikeLate(t, r, time.Second)
	if n := seen["late_writes"]; n < 2 || seen["late_refused"] != 0 || seen["late_committed"] != n {
		t.Fatalf("%v", seen)
	}
	for i, l := range records {
		if l.NewVersion <= l.OldVersion || l.OldFence != 0 || l.Answer != "COMMIT" || !l.Committed {
			t.Errorf("%d: %+v", i, l)
		}
	}
	r.bank.mustHave(1)
}

// Nobody comes by: the packet is delivered in the end, and is not called late.
func TestLateWrite_WithoutANewerHolderNothingIsLate(t *testing.T) {
	r := &branch{bank: newBank(t)}
	w := r.bank.wire()
	conn := r.bank.connect(w.URL())
	ctx, stop := context.WithCancel(t.Context())
	writing := beside(func() error { return r.write(ctx, conn) })
	f := LateWrite{
		Wires: []*Wire{w}, TTL: 100 * time.Millisecond, URL: r.bank.url,
		Evict: func(context.Context, string) (bool, error) { return true, nil },
	}
	events, err := f.Strike(t.Context(), 20*time.Millisecond)
	if err != nil || len(events) == 0 || len(sum(events)) != 0 {
		t.Errorf("%+v, %v", events, err)
	}
	stop()
	if err := soon(t, "the replica", writing); err != nil {
		t.Error(err)
	}
}

func TestLateWrite_CalledOffItLetsGo(t *testing.T) {
	r := &branch{bank: newBank(t)}
	w := r.bank.wire()
	conn := r.bank.connect(w.URL())
	ctx, cancel := context.WithCancel(t.Context())
	writing := beside(func() error { return r.write(ctx, conn) })
	f := LateWrite{
		Wires: []*Wire{w}, TTL: time.Hour, URL: r.bank.url,
		Evict: func(context.Context, string) (bool, error) { cancel(); return true, nil },
	}
	if _, err := f.Strike(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := soon(t, "the replica", writing); err != nil {
		t.Error(err)
	}
}
