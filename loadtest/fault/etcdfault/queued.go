package etcdfault

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Queued counts the keys with a lease that are put below a prefix. Each is a lock that a process
// requested, except for fencing keys, which are not counted. Queued also records the leases of the
// keys. It watches etcd, so the evidence comes from etcd's revisions, not from the processes.
type Queued struct {
	client *clientv3.Client
	stop   context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	moments []time.Time // when each put was seen
	leases  map[clientv3.LeaseID]bool
	err     error
}

// WatchQueues starts counting.
func WatchQueues(ctx context.Context, client *clientv3.Client, prefix string) (*Queued, error) {
	q := &Queued{client: client, leases: map[clientv3.LeaseID]bool{}}
	ctx, q.stop = context.WithCancel(ctx)
	events := client.Watch(ctx, prefix+"/", clientv3.WithPrefix(), clientv3.WithFilterDelete(), clientv3.WithCreatedNotify())
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
			q.take(answer, len(prefix))
		}
	})
	return q, nil
}

func (q *Queued) take(answer clientv3.WatchResponse, prefix int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := answer.Err(); err != nil && answer.Canceled {
		q.err = err
		return
	}
	for _, e := range answer.Events {
		name := string(e.Kv.Key)[prefix:]
		if e.Kv.Lease != 0 && !strings.HasPrefix(name, "/fenced:") {
			q.moments = append(q.moments, time.Now())
		}
		if isQueue(name) { // the lease of a process; the lease of a single lock ends with its release
			q.leases[clientv3.LeaseID(e.Kv.Lease)] = true
		}
	}
}

// Seen is the result of a watch of queues.
type Seen struct {
	All, After int64 // keys put: all, and those after a moment
	Ended      int64 // leases of those keys that have ended
}

// Stop ends the watch. The processes must still be running: a lease that ends with its process
// is not a lost lease.
func (q *Queued) Stop(ctx context.Context, moment time.Time) (seen Seen, err error) {
	q.stop()
	q.work.Wait()
	if q.err != nil && ctx.Err() == nil {
		return seen, fmt.Errorf("watch: %w", q.err)
	}
	seen.All = int64(len(q.moments))
	for _, at := range q.moments {
		if at.After(moment) {
			seen.After++
		}
	}
	for id := range q.leases {
		left, err := q.client.TimeToLive(ctx, id)
		if err != nil {
			return seen, fmt.Errorf("lease %x: %w", id, err)
		}
		if left.TTL <= 0 {
			seen.Ended++
		}
	}
	return seen, nil
}
