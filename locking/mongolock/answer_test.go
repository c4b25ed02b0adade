// SPDX-License-Identifier: MIT

package mongolock

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/locking"
)

// failing makes the server send answer to the next n findAndModify of one client.
func failing(t *testing.T, s *opened, app string, n int, answer ...bson.E) {
	t.Helper()
	data := append(bson.D{{Key: "failCommands", Value: bson.A{"findAndModify"}}, {Key: "appName", Value: app}}, answer...)
	err := s.grants.Database().Client().Database("admin").RunCommand(t.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: bson.D{{Key: "times", Value: n}}}, {Key: "data", Value: data},
	}).Err()
	if err != nil {
		t.Fatal(err)
	}
}

// Errors that leave the outcome unknown are retried until the grant. Refusals are returned.
func TestTryAcquire_AnswersThatAreNoGrant(t *testing.T) {
	server := startServer(t)
	c := newCollection(t, server.URL)
	again := bson.E{Key: "errorLabels", Value: bson.A{"RetryableWriteError"}}
	for name, try := range map[string]struct {
		answer  []bson.E
		times   int
		refused bool // false: a retry gets the grant
	}{
		"written, not by a majority": {[]bson.E{{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 64}, {Key: "errmsg", Value: "waiting for replication timed out"}}}}, 1, false},
		"no longer the primary":      {[]bson.E{{Key: "errorCode", Value: 10107}, again}, 3, false},
		"time limit exceeded":        {[]bson.E{{Key: "errorCode", Value: 50}}, 1, false},
		"a duplicate key":            {[]bson.E{{Key: "errorCode", Value: 11000}}, 1, true},
		"not allowed":                {[]bson.E{{Key: "errorCode", Value: 13}}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			store := storeOn(t, connect(t, server.URL+"&appName=tested").Database(c.Database().Name()).Collection(c.Name()), 12*time.Second)
			failing(t, store, "tested", try.times, try.answer...)
			lease, err := store.TryAcquire(t.Context(), name)
			if !try.refused && (err != nil || lease.Fence != 1) {
				t.Errorf("got %+v, %v, want the grant", lease, err)
			}
			if try.refused && (err == nil || errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrBusy)) {
				t.Errorf("got %v, want the refusal unchanged", err)
			}
		})
	}
}

// The first request for a key creates its document. Of many concurrent first requests
// one is granted, and the others get ErrBusy, not a duplicate-key error.
func TestTryAcquire_OfANewKeyIsGrantedOnce(t *testing.T) {
	t.Parallel()
	const keys, callers = 40, 8
	store := newStore(t, time.Minute)
	var granted atomic.Int64
	for i := range keys {
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				lease, err := store.TryAcquire(t.Context(), strconv.Itoa(i))
				if err == nil && lease.Fence == 1 {
					granted.Add(1)
				} else if !errors.Is(err, locking.ErrBusy) {
					t.Errorf("got %+v, %v", lease, err)
				}
			})
		}
		all.Wait()
	}
	if n := granted.Load(); n != keys {
		t.Errorf("%d grants of %d keys", n, keys)
	}
}
