// SPDX-License-Identifier: MIT

package redisfault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/loadtest/fault"
)

// Failover lets Sentinel promote a replica of Redis that has not received the last locks, while a
// replica of the service is paused and holds one of them. Then two holders of a key are within
// the TTL of their leases:
//
//	0 ms      the master refuses its replicas from now on, as a partition between them would
//	~100 ms   a replica of the service is paused while it holds a lock that only the master has
//	~300 ms   the master is killed, or paused every second time
//	~2 s      Sentinel has promoted another member, which grants the key to another request
//	          the paused replica of the service resumes, within the TTL of its lease
//	~3 s      the old master is back, and becomes a replica
//
// A Sentinel whose timer is late by two seconds is in TILT and does not act for a while. Such a
// run is void: its events have no evidence.
type Failover struct {
	Members   []fault.Member // the master and its replicas
	Sentinels []fault.Member
	Name      string // by which the Sentinels know the master
	Prefix    string // of the replicas' locks
	Replicas  fault.Pausable
	TTL       time.Duration // of a lock; a failover takes two to three seconds, and a third of the TTL should be longer
	Times     int
}

// The bounds. A lock that stays the same for heldFor is that of the paused replica: no other holder takes nearly as
// long.
const (
	failoverNeeds = 7 * time.Second
	failoverWait  = 20 * time.Second
	freshWait     = 5 * time.Second // until a product goes on sale
	heldFor       = 600 * time.Millisecond
	holderWait    = 4 * time.Second        // until a replica is paused with the lock
	onSale        = 300 * time.Millisecond // in which each product that is on sale is bought
	inDemand      = 3                      // holders of the lock of a product that is on sale
	askEvery      = 5 * time.Millisecond
	headStart     = 700 * time.Millisecond
	trusted       = 600 * time.Millisecond // before the TTL ends, the paused replica resumes
)

// Inject spreads the failovers evenly. It undoes what it does even if it fails or ctx ends.
func (f Failover) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	set := newSet(f)
	defer set.close()
	events, err := fault.Series(ctx, over, f.Times, failoverNeeds, set.failover)
	if set.tilted {
		for i := range events {
			events[i].What, events[i].Seen = events[i].What+" (void: a Sentinel was in TILT)", nil
		}
	}
	return events, err
}

// heldLock is a lock of the paused replica.
type heldLock struct {
	value string
	until time.Time
}

// set is the Redis of a Failover, with a client of each member and each Sentinel.
type set struct {
	Failover
	members   []*redis.Client
	sentinels []*redis.Client
	tilted    bool // a Sentinel was in TILT at the end of a round, as it is for half a minute
}

func newSet(f Failover) *set {
	s := &set{Failover: f}
	for _, m := range f.Members {
		s.members = append(s.members, redis.NewClient(direct(m.Addr)))
	}
	for _, m := range f.Sentinels {
		s.sentinels = append(s.sentinels, redis.NewClient(direct(m.Addr)))
	}
	return s
}

// direct are the options of a client of one server, which may be killed or paused. A Sentinel that makes a server a
// replica, or the master, also closes the connections of its clients. So requests are repeated: all are idempotent.
// (The client does not repeat a WATCH; isolate does.)
func direct(addr string) *redis.Options {
	return &redis.Options{
		Addr: addr, MaxRetries: 3, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second,
	}
}

func (s *set) close() {
	for _, c := range slices.Concat(s.members, s.sentinels) {
		_ = c.Close()
	}
}

// failover is one round. The replica of the service that is paused changes from round to round.
func (s *set) failover(ctx context.Context, round int) (event fault.Event, err error) {
	whole, cancel := fault.Undoing(ctx)
	defer cancel()
	old, err := s.master(whole, "")
	if err != nil {
		return event, err
	}
	master, n := s.members[old], round%2
	name, err := s.fresh(ctx, master)
	if err != nil {
		return event, err
	}
	end, back, how := fault.Down(s.Members[old].Server, round)
	ended, followed := false, false
	defer func() { // whatever has failed
		late, done := fault.Undoing(ctx)
		defer done()
		err = errors.Join(err, s.Replicas.Resume(n))
		if ended {
			err = errors.Join(err, back(late))
		}
		if !followed {
			err = errors.Join(err, accept(late, master))
		}
	}()
	if err := isolate(ctx, master, name); err != nil {
		return event, err
	}
	lock, err := s.pauseHolder(ctx, n, master, name)
	if err != nil || ctx.Err() != nil {
		return event, err
	}
	event = fault.Event{
		What: fmt.Sprintf("redis master %s %s, replica %d paused", s.Members[old].Addr, how, n+1),
		At:   time.Now(), Hits: 1, Seen: map[string]int64{},
	}
	ended = true
	if err := end(whole); err != nil {
		return event, err
	}
	next, err := s.master(whole, s.Members[old].Addr)
	if err != nil {
		return event, errors.Join(err, s.checkTilt(whole))
	}
	event.What += fmt.Sprintf(", another promoted after %.1f s", time.Since(event.At).Seconds())
	event.Seen["redis_failovers"] = 1
	event.Seen["two_holders"], err = s.twice(ctx, s.members[next], name, lock, event.At)
	if how == "paused" { // the paused replica of the service still has connections to it
		ended = false
		err = errors.Join(err, back(whole))
	}
	err = errors.Join(err, s.Replicas.Resume(n))
	event.Until = time.Now()
	if ended {
		ended = false
		err = errors.Join(err, back(whole))
	}
	followed = true
	return event, errors.Join(err, s.follow(whole, old), s.checkTilt(whole))
}

// master returns the number of the member that most Sentinels take for the master and that says
// so itself. It waits until that is another one than at address not.
func (s *set) master(ctx context.Context, not string) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, failoverWait)
	defer cancel()
	for {
		votes := map[string]int{}
		for _, sentinel := range s.sentinels {
			if addr, err := sentinel.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name).StringSlice(); err == nil && len(addr) == 2 {
				votes[net.JoinHostPort(addr[0], addr[1])]++
			}
		}
		for n, m := range s.Members {
			if m.Addr == not || votes[m.Addr] <= len(s.sentinels)/2 {
				continue
			}
			if info, err := s.members[n].Info(ctx, "replication").Result(); err == nil && strings.Contains(info, "\nrole:master") {
				return n, nil
			}
		}
		if !fault.Wait(ctx, askEvery) {
			return 0, fmt.Errorf("no master other than %q: %w; the Sentinels say %v", not, ctx.Err(), votes)
		}
	}
}

// fresh waits until the lock of a product that was not on sale before is taken again and again, and returns its
// name: the product will still be sold after the failover. Without one it returns "" after freshWait.
func (s *set) fresh(ctx context.Context, master *redis.Client) (string, error) {
	holders := map[string][]string{} // by lock; nil: its product was on sale before
	for began := time.Now(); time.Since(began) < freshWait && fault.Wait(ctx, askEvery); {
		locks, err := s.locks(ctx, master)
		if err != nil {
			return "", err
		}
		for name, lock := range locks {
			list, seen := holders[name]
			switch {
			case time.Since(began) < onSale || seen && list == nil:
				holders[name] = nil
			case len(list) == inDemand:
				return name, nil
			case !slices.Contains(list, lock.value):
				holders[name] = append(list, lock.value)
			}
		}
	}
	return "", nil
}

// isolate makes a master refuse its replicas, at a moment at which the lock is free: a replica would keep
// a lock of which it does not see the end. Clients and Sentinels do not notice.
func isolate(ctx context.Context, master *redis.Client, name string) error {
	for broken := 0; ; {
		err := master.Watch(ctx, func(tx *redis.Tx) error {
			if n, err := tx.Exists(ctx, name).Result(); err != nil || n > 0 {
				return cmp.Or(err, error(redis.TxFailedErr))
			}
			_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.Do(ctx, "ACL", "SETUSER", "default", "-psync", "-sync", "-replconf")
				p.Do(ctx, "CLIENT", "KILL", "TYPE", "replica")
				return nil
			})
			return err
		}, name)
		var reply redis.Error
		switch {
		case err == nil || errors.As(err, &reply) && !errors.Is(err, redis.TxFailedErr) || broken == 3:
			return err
		case !errors.Is(err, redis.TxFailedErr): // the connection was closed
			broken++
		}
		if !fault.Wait(ctx, time.Millisecond) {
			return err
		}
	}
}

// accept undoes isolate.
func accept(ctx context.Context, member *redis.Client) error {
	return member.Do(ctx, "ACL", "SETUSER", "default", "+psync", "+sync", "+replconf").Err()
}

// pauseHolder pauses replica n of the service while it holds the lock, and returns the lock. If no attempt
// succeeds, the replica is paused without it: the evidence will be lacking.
func (s *set) pauseHolder(ctx context.Context, n int, master *redis.Client, name string) (lock heldLock, err error) {
	for end := time.Now().Add(holderWait); time.Now().Before(end); {
		if err := s.Replicas.Pause(n); err != nil {
			return lock, err
		}
		if lock, err = s.stays(ctx, master, name); err != nil || lock.value != "" {
			return lock, err
		}
		if err := s.Replicas.Resume(n); err != nil {
			return lock, err
		}
		if !fault.Wait(ctx, askEvery) {
			break
		}
	}
	return lock, s.Replicas.Pause(n)
}

// stays returns a lock that has the same holder for heldFor, or else no lock.
func (s *set) stays(ctx context.Context, master *redis.Client, name string) (heldLock, error) {
	for first, began := "", time.Now(); ; {
		locks, err := s.locks(ctx, master)
		lock, taken := locks[name]
		if first == "" {
			first = lock.value
		}
		switch {
		case err != nil || !taken || lock.value != first:
			return heldLock{}, err
		case time.Since(began) > heldFor:
			return lock, nil
		case !fault.Wait(ctx, askEvery):
			return heldLock{}, nil
		}
	}
}

// locks returns all locks at a master.
func (s *set) locks(ctx context.Context, master *redis.Client) (map[string]heldLock, error) {
	locks := map[string]heldLock{}
	for cursor := uint64(0); ; {
		names, next, err := master.Scan(ctx, cursor, lockPattern(s.Prefix), 1000).Result()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			var value *redis.StringCmd
			var left *redis.DurationCmd
			asked := time.Now()
			_, err := master.Pipelined(ctx, func(p redis.Pipeliner) error {
				value, left = p.Get(ctx, name), p.PTTL(ctx, name)
				return nil
			})
			if err == nil && left.Val() > 0 {
				locks[name] = heldLock{value.Val(), asked.Add(left.Val())}
			} else if err != nil && !errors.Is(err, redis.Nil) { // released meanwhile
				return nil, err
			}
		}
		if cursor = next; cursor == 0 {
			return locks, nil
		}
	}
}

// twice returns 1 when the new master has granted the lock of the paused replica to another holder, which has
// had a moment to sell, and 0 if that does not happen while the paused replica may trust its lease. A grant is
// younger than the end of the old master: a lock that the new one kept from before is none.
func (s *set) twice(ctx context.Context, master *redis.Client, name string, lock heldLock, ended time.Time) (int64, error) {
	for time.Until(lock.until) > trusted+s.TTL/100 && ctx.Err() == nil {
		locks, err := s.locks(ctx, master)
		if err != nil {
			return 0, fmt.Errorf("read the locks at the new master: %w", err)
		}
		if other, taken := locks[name]; taken && other.value != lock.value && other.until.Add(-s.TTL).After(ended) {
			fault.Wait(ctx, headStart)
			return 1, nil
		}
		fault.Wait(ctx, askEvery)
	}
	return 0, nil
}

// follow makes the old master a replica of the new one at once, as a Sentinel does after about ten
// seconds, and waits until all members have the data of the new master. The Sentinels may have promoted
// another one meanwhile.
func (s *set) follow(ctx context.Context, old int) error {
	if err := accept(ctx, s.members[old]); err != nil {
		return fmt.Errorf("let the old master %s accept replicas again: %w", s.Members[old].Addr, err)
	}
	ctx, cancel := context.WithTimeout(ctx, failoverWait)
	defer cancel()
	for {
		next, err := s.master(ctx, s.Members[old].Addr)
		if err != nil {
			return err
		}
		host, port, _ := net.SplitHostPort(s.Members[next].Addr)
		err = s.members[old].ReplicaOf(ctx, host, port).Err()
		info, infoErr := s.members[next].Info(ctx, "replication").Result()
		if err = errors.Join(err, infoErr); err == nil && strings.Count(info, ",state=online,") == len(s.members)-1 {
			return nil
		}
		if !fault.Wait(ctx, askEvery) {
			return fmt.Errorf("a replica of %s does not follow: %w", s.Members[next].Addr, errors.Join(ctx.Err(), err, errors.New(info)))
		}
	}
}

// checkTilt notes whether a Sentinel is in TILT.
func (s *set) checkTilt(ctx context.Context) error {
	for _, sentinel := range s.sentinels {
		info, err := sentinel.Info(ctx, "sentinel").Result()
		if err != nil {
			return fmt.Errorf("is Sentinel %s in TILT: %w", sentinel.Options().Addr, err)
		}
		s.tilted = s.tilted || !strings.Contains(info, "\nsentinel_tilt:0")
	}
	return nil
}
