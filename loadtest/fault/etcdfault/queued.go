// SPDX-License-Identifier: MIT

package etcdfault

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Queued counts the keys with a lease that are put below a prefix: each is a lock that a process
// requested. It also counts the leases that ended while they held all of their locks. It watches etcd, so the evidence comes
// from etcd's revisions, not from the processes.
type Queued struct {
	client *clientv3.Client
	stop   context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	moments []time.Time                 // when each put was seen
	queues  map[string]map[string]int64 // the create revision of each name in a queue
	ended   int64
	err     error
}

// WatchQueues starts counting.
func WatchQueues(ctx context.Context, client *clientv3.Client, prefix string) (*Queued, error) {
	q := &Queued{client: client, queues: map[string]map[string]int64{}}
	ctx, q.stop = context.WithCancel(ctx)
	events := client.Watch(ctx, prefix+"/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
	select {
	case created := <-events:
		if err := created.Err(); err != nil {
			q.stop()
			return nil, fmt.Errorf("watch %s/: %w", prefix, err)
		}
	case <-time.After(electionWait):
		q.stop()
		return nil, fmt.Errorf("watch %s/: the watch has not started after %v", prefix, electionWait)
	}
	q.work.Go(func() {
		for answer := range events {
			for _, id := range q.take(answer, len(prefix)) {
				q.work.Go(func() { q.count(ctx, id) }) // at once: a lease that was released soon ends too
			}
		}
	})
	return q, nil
}

// take notes what a watch has reported. It returns the leases all of whose locks were deleted in one transaction, while each was
// the first in its queue: they were released, or their lease has ended.
func (q *Queued) take(answer clientv3.WatchResponse, prefix int) (over []clientv3.LeaseID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := answer.Err(); err != nil && answer.Canceled {
		q.err = err
		return nil
	}
	type end struct {
		revision int64
		lease    clientv3.LeaseID
	}
	held := map[end]bool{}
	for _, e := range answer.Events {
		name := string(e.Kv.Key)
		if e.Type == clientv3.EventTypePut && e.Kv.Lease != 0 {
			q.moments = append(q.moments, time.Now())
		}
		if !isQueue(name[prefix:]) {
			continue
		}
		of := name[:strings.LastIndex(name, "/")]
		switch {
		case e.Type == clientv3.EventTypePut:
			if q.queues[of] == nil {
				q.queues[of] = map[string]int64{}
			}
			q.queues[of][name] = e.Kv.CreateRevision
		case e.PrevKv != nil:
			delete(q.queues[of], name)
			first := true
			for _, created := range q.queues[of] {
				first = first && created > e.PrevKv.CreateRevision
			}
			at := end{e.Kv.ModRevision, clientv3.LeaseID(e.PrevKv.Lease)}
			before, seen := held[at]
			held[at] = first && (before || !seen)
		}
	}
	for at, all := range held {
		if all {
			over = append(over, at.lease)
		}
	}
	return over
}

// count counts a lease, if etcd no longer has it and says -1. One whose locks were released outlives them, perhaps by less than
// a second, of which etcd says 0.
func (q *Queued) count(ctx context.Context, id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if left, err := q.client.TimeToLive(ctx, id); err == nil && left.TTL < 0 {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.ended++
	}
}

// Seen is the result of a watch of queues.
type Seen struct {
	All, After int64 // keys put: all, and those after a moment
	Ended      int64 // leases that ended while they held all of their locks
}

// Stop ends the watch.
func (q *Queued) Stop(ctx context.Context, moment time.Time) (seen Seen, err error) {
	q.stop()
	q.work.Wait()
	if q.err != nil && ctx.Err() == nil {
		return seen, fmt.Errorf("watch: %w", q.err)
	}
	seen.All, seen.Ended = int64(len(q.moments)), q.ended
	for _, at := range q.moments {
		if at.After(moment) {
			seen.After++
		}
	}
	return seen, nil
}
