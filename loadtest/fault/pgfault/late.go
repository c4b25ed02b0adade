// SPDX-License-Identifier: MIT

package pgfault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"shop/loadtest/fault"
	"shop/transfer"

	"github.com/jackc/pgx/v5"
)

// LateWrite repeats Kleppmann's example: a write that a replica sent while it held
// the lock reaches PostgreSQL after another holder has had the lock. The replicas
// take turns, each in both ways:
//
//	revoked    the segment is held back, and the replica's lease is revoked. The replica
//	           does not know yet, and waits for its answer
//	stopped    the segment is held back, and the replica is stopped until its lease
//	           has expired. The replica gets the answer when it is resumed
//
// LateWrite delivers the segment once a newer holder has changed the account's balance. It
// holds the first segment of a transaction that writes to accounts: only the guard if
// the guard is sent first and alone, or the whole transaction if it is one segment.
// It never holds a guarded read, whose transaction writes only fences. If no newer
// holder comes in time, the segment is delivered, and does not count as late.
type LateWrite struct {
	Proxies  []*Proxy       // of the replicas, by number
	Replicas fault.Pausable // the same
	TTL      time.Duration
	URL      string                                                  // of the database, past the proxies
	Evict    func(ctx context.Context, account string) (bool, error) // revokes the lease of the account's holder; false: it has none
	Record   func(LateRecord)                                        // called with each late write; may be nil
}

// The bounds of one late write, some as multiples or fractions of the TTL. The lease of a stopped
// replica expires within one TTL, which leaves another for a newer holder. A replica
// notices a revoked lease within a third of the TTL, so a newer holder gets a quarter.
const (
	stoppedTTLs    = 2
	expiryLate     = 500 * time.Millisecond // how often etcd checks for expired leases
	revokedPart    = 4
	betweenPart    = 8 // undisturbed time between two late writes
	answerWait     = 5 * time.Second
	commitLeftWait = time.Second
	lookEvery      = 2 * time.Millisecond
)

// Inject alternates between the ways, once a write of a stopped replica was late. It stops no replica unless the
// time suffices.
func (l LateWrite) Inject(ctx context.Context, over time.Duration) (events []fault.Event, err error) {
	db, err := pgx.Connect(ctx, l.URL)
	if err != nil {
		return nil, fmt.Errorf("late write: %w", err)
	}
	defer func() {
		late, cancel := fault.Undoing(ctx)
		defer cancel()
		err = errors.Join(err, db.Close(late))
	}()
	end, stopped := time.Now().Add(over), false
	for i := 0; time.Now().Before(end) && ctx.Err() == nil; i++ {
		n, way := i/2%len(l.Proxies), Revoked
		if (i%2 == 1 || !stopped) && time.Until(end) > l.longest() {
			way = Stopped
		}
		one := lateInjection{LateWrite: l, db: db, until: end, record: LateRecord{Replica: n, Way: way}}
		err := one.do(ctx)
		if r := one.record; !r.Held.IsZero() {
			events = append(events, r.event())
		}
		if err != nil {
			return events, fmt.Errorf("late write of replica %d: %w", n+1, err)
		}
		if r := one.record; r.Late() {
			stopped = stopped || r.Way == Stopped
			if l.Record != nil {
				l.Record(r)
			}
		}
		fault.Wait(ctx, min(l.TTL/betweenPart, time.Until(end)))
	}
	return events, ctx.Err()
}

// longest is how long a replica may be stopped.
func (l LateWrite) longest() time.Duration { return l.TTL*stoppedTTLs + expiryLate }

// lateInjection is the injection of one late write.
type lateInjection struct {
	LateWrite
	db      *pgx.Conn
	until   time.Time
	segment *segment
	record  LateRecord
}

// do holds a segment, ends the lease, waits for the next holder, and delivers.
func (s *lateInjection) do(ctx context.Context) error {
	held, release := s.Proxies[s.record.Replica].hold(wanted)
	defer release()
	limit := time.NewTimer(min(s.TTL, time.Until(s.until)))
	defer limit.Stop()
	select {
	case s.segment = <-held:
	case <-limit.C:
		return nil // nothing to hold
	case <-ctx.Done():
		return nil
	}
	s.record.hold(s.segment)
	if !s.segment.begins {
		// The transaction is open already. If the replica were stopped, PostgreSQL
		// would end it (idle in transaction) before the lease expires.
		s.record.Way = Revoked
	}
	return s.deliver(ctx, release)
}

// wanted reports whether a segment may move money and names its accounts. A segment that also ends a hold is
// not wanted: the replica sends COMMIT only after the answer, which it does not await once its lease is lost.
func wanted(p *segment) bool {
	endsHold := slices.ContainsFunc(p.sent, func(s statement) bool { return s.money == transfer.EndsHold })
	return p.touches && !endsHold && (p.tx.wrote || !p.tx.over) && len(accountsOf(p)) > 0
}

func (s *lateInjection) deliver(ctx context.Context, release func()) (err error) {
	before, err := readAccounts(ctx, s.db, s.record.accounts)
	if err != nil {
		return err
	}
	resume := sync.OnceValue(func() error { return nil })
	if s.record.Way == Stopped {
		resume = sync.OnceValue(s.resume)
	}
	defer func() { err = errors.Join(err, resume()) }()
	if taken, err := s.take(ctx); err != nil || !taken {
		return err // the lock has no holder left: the segment is released
	}
	if err := s.awaitNewer(ctx, before); err != nil {
		return err
	}
	s.record.Delivered = time.Now()
	release()
	if !fault.Within(ctx, answerWait, s.segment.answered) {
		return nil // its record says that there was no answer
	}
	s.record.answer(s.segment)
	if err := resume(); err != nil { // the replica may still have to send COMMIT
		return err
	}
	if fault.Within(ctx, commitLeftWait, s.segment.tx.ended) {
		s.record.end(s.segment)
	}
	return nil
}

// take ends the lease in the injection's way: by revoking it, or by stopping the replica until
// the lease expires.
func (s *lateInjection) take(ctx context.Context) (taken bool, err error) {
	if s.record.Way == Revoked {
		taken, err = s.Evict(ctx, s.record.accounts[0].String())
	} else {
		taken, err = true, s.Replicas.Pause(s.record.Replica)
	}
	s.record.Taken = time.Now()
	return taken, err
}

func (s *lateInjection) resume() error {
	err := s.Replicas.Resume(s.record.Replica)
	s.record.Resumed = time.Now()
	return err
}

// awaitNewer waits until a newer holder has changed the balance of one of the accounts, or a limit passes.
func (s *lateInjection) awaitNewer(ctx context.Context, before []accountState) error {
	limit := s.TTL / revokedPart
	if s.record.Way == Stopped {
		limit = s.longest()
	}
	for end := time.Now().Add(limit); time.Now().Before(end); {
		now, err := readAccounts(ctx, s.db, s.record.accounts)
		if err != nil || s.record.overtaken(before, now) {
			return err
		}
		if !fault.Wait(ctx, lookEvery) {
			return nil
		}
	}
	return nil
}
