// SPDX-License-Identifier: MIT

package pgfault

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"shop/loadtest/fault"

	"github.com/jackc/pgx/v5"
)

// branch is a replica of the bank, which writes repeatedly through its proxy. There is
// no lock: Evict and Pause play the next holder.
type branch struct {
	*bank
	fenced  bool
	next    *pgx.Conn
	fence   int64 // of the current writer
	mu      sync.Mutex
	paused  bool
	resumed int
}

// takeOver writes as the next holder.
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

// write makes transfers until ctx ends.
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

// begin writes through the proxy in the background, until end is called or the test
// ends, so that a failed test leaves no writer behind.
func (r *branch) begin(t *testing.T, w *Proxy) (end func() error) {
	t.Helper()
	conn := r.bank.connect(w.URL())
	ctx, stop := context.WithCancel(t.Context())
	writing := concurrently(func() error { return r.write(ctx, conn) })
	end = sync.OnceValue(func() error {
		stop()
		return soon(t, "the replica", writing)
	})
	t.Cleanup(func() { _ = end() })
	return end
}

// injectLate runs the fault against a branch until it has enough records.
func injectLate(t *testing.T, r *branch, enough func([]LateRecord) bool) (records []LateRecord, seen map[string]int64) {
	t.Helper()
	w := r.bank.proxy()
	r.next = r.bank.connect(r.bank.url)
	end := r.begin(t, w)
	ctx, done := context.WithCancel(t.Context())
	defer done()
	f := LateWrite{
		Proxies: []*Proxy{w}, Replicas: r, TTL: 100 * time.Millisecond, URL: r.bank.url,
		Evict: func(ctx context.Context, account string) (bool, error) {
			if account != r.bank.id.String() {
				t.Errorf("account %s", account)
			}
			return true, r.takeOver(ctx)
		},
		Record: func(l LateRecord) {
			if records = append(records, l); enough(records) {
				done()
			}
		},
	}
	events, err := f.Inject(ctx, time.Minute)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, %d late writes in a minute", err, len(records))
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if r.paused {
		t.Error("the replica is still stopped")
	}
	return records, fault.Seen(events)
}

// twiceEach reports whether both ways occur at least twice.
func twiceEach(records []LateRecord) bool {
	ways := map[Way]int{}
	for _, l := range records {
		ways[l.Way]++
	}
	return ways[Revoked] > 1 && ways[Stopped] > 1
}

func TestLateWrite_AGuardRefusesEachAfterAPauseOrARevokedLease(t *testing.T) {
	r := &branch{bank: newBank(t), fenced: true}
	records, seen := injectLate(t, r, twiceEach)
	if n := seen["late_writes"]; seen["late_refused"] != n || seen["late_committed"] != 0 || len(records) != int(n) {
		t.Fatalf("%v, %d records", seen, len(records))
	}
	for i, l := range records {
		ordered := !l.Taken.Before(l.Held) && !l.Overtaken.Before(l.Taken) && !l.Delivered.Before(l.Overtaken) && !l.Answered.Before(l.Delivered)
		if !ordered || l.NewFence != l.OldFence+1 || l.Answer != "UPDATE 0" || !l.Refused || l.Committed {
			t.Errorf("%d: %+v", i, l)
		}
		if (l.Way == Stopped) == l.Resumed.IsZero() {
			t.Errorf("%d: %s, resumed %v", i, l.Way, l.Resumed)
		}
	}
	if stops := seen["late_stopped"]; int64(r.resumed) < stops {
		t.Errorf("stopped %d times, resumed %d times", stops, r.resumed)
	}
}

func TestLateWrite_WithoutAGuardEachOverwritesTheNewerOne(t *testing.T) {
	r := &branch{bank: newBank(t)}
	records, seen := injectLate(t, r, twiceEach)
	if n := seen["late_writes"]; seen["late_refused"] != 0 || seen["late_committed"] != n {
		t.Fatalf("%v", seen)
	}
	for i, l := range records {
		if l.NewVersion <= l.OldVersion || l.OldFence != 0 || l.Answer != "COMMIT" || !l.Committed {
			t.Errorf("%d: %+v", i, l)
		}
	}
	r.bank.mustHave(1)
}

func TestLateRecord_ACommitWithAnOlderFenceIsSeen(t *testing.T) {
	now := time.Now()
	late := LateRecord{Way: Revoked, Held: now, Overtaken: now, Delivered: now, Answer: "COMMIT", Committed: true, OldFence: 7, NewFence: 8}
	if seen := late.event().Seen; seen["late_committed"] != 1 || seen["fence_ignored"] != 1 {
		t.Error(seen)
	}
	late.OldFence, late.NewFence = 0, 0
	if seen := late.event().Seen; seen["late_committed"] != 1 || seen["fence_ignored"] != 0 {
		t.Error(seen, "of a strategy without fences")
	}
}

// pausable are replicas that are not really paused.
type pausable struct{}

func (pausable) Pause(int) error  { return nil }
func (pausable) Resume(int) error { return nil }

// Without a newer holder the segment is delivered in the end, and does not count as late.
func TestLateWrite_WithoutANewerHolderNothingIsLate(t *testing.T) {
	r := &branch{bank: newBank(t)}
	w := r.bank.proxy()
	end := r.begin(t, w)
	f := LateWrite{
		Proxies: []*Proxy{w}, Replicas: pausable{}, TTL: 100 * time.Millisecond, URL: r.bank.url,
		Evict: func(context.Context, string) (bool, error) { return true, nil },
	}
	events, err := f.Inject(t.Context(), 5*time.Second)
	if err != nil || len(events) == 0 || len(fault.Seen(events)) != 0 {
		t.Errorf("%+v, %v", events, err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestLateWrite_CancelledItReleasesTheHeldSegment(t *testing.T) {
	r := &branch{bank: newBank(t)}
	w := r.bank.proxy()
	end := r.begin(t, w)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := LateWrite{
		Proxies: []*Proxy{w}, TTL: time.Hour, URL: r.bank.url,
		Evict: func(context.Context, string) (bool, error) { cancel(); return true, nil },
	}
	if _, err := f.Inject(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// A guarded read is a transaction of its own that writes the fence but moves no
// money. The write after it is the one to delay.
func TestLateWrite_AGuardedReadIsNotHeldBack(t *testing.T) {
	b := newBank(t)
	w := b.proxy()
	conn := b.connect(w.URL())
	held, release := w.hold(wanted)
	t.Cleanup(release)
	send := func(writes bool) error {
		batch := &pgx.Batch{}
		batch.Queue("begin")
		batch.Queue(guardSQL, b.id, 7)
		if writes {
			batch.Queue(balanceSQL, b.id, 50)
		}
		batch.Queue("commit")
		return conn.SendBatch(context.Background(), batch).Close()
	}
	if err := soon(t, "the guarded read", concurrently(func() error { return send(false) })); err != nil {
		t.Fatal(err)
	}
	if len(held) != 0 {
		t.Error("the guarded read was held")
	}
	sent := concurrently(func() error { return send(true) })
	soon(t, "the write is held", held)
	release()
	if err := soon(t, "the write", sent); err != nil {
		t.Error(err)
	}
	b.mustHave(50)
}
