// SPDX-License-Identifier: MIT

package mongofault

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/loadtest/fault"
)

// struck checks the events of a fault, and that all members are back.
func struck(t *testing.T, set Set, events []fault.Event, err error, times int) {
	t.Helper()
	for _, e := range events {
		t.Logf("%s: %v in %v", e.What, e.Seen, e.Until.Sub(e.At).Round(time.Millisecond))
	}
	if err != nil || len(events) != times || fault.Seen(events)["elections"] < int64(times) {
		t.Errorf("%d events, %v", len(events), err)
	}
	if err := set.CaughtUp(t.Context()); err != nil {
		t.Error(err)
	}
	for _, m := range set {
		if _, err := command(t.Context(), m.Addr, "admin", bson.D{{Key: "ping", Value: 1}}); err != nil {
			t.Error(err)
		}
	}
}

// A busy machine causes additional elections: a proxy leads to
// whichever member is the primary.
func TestStepDown_AnotherIsElectedEachTimeAndAProxyLeadsToIt(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"mongo", "mongo3"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url, set := private(t, kind)
			db, w := newDatabase(t, url), newProxy(t, url)
			c := talk{t: t, w: w, db: connect(t, w.URL()).Database(db.Name())}
			c.must(c.newLock)(t.Context())
			// Not Inject, which begins no step down that may not end in time.
			events, err := fault.Series(t.Context(), 0, 2, 0, StepDown{Set: set}.once)
			struck(t, set, events, err, 2)
			eventually(t, c.newLock)
		})
	}
}

func TestFailovers_DoNotBeginWithoutEnoughTime(t *testing.T) {
	for _, f := range []fault.Fault{StepDown{Times: 1}, PrimaryPause{Times: 1}, PrimaryKill{Times: 1}} {
		if events, err := f.Inject(t.Context(), time.Second); err != nil || len(events) != 0 {
			t.Errorf("%T: %+v, %v", f, events, err)
		}
	}
}

func TestPrimaryPause_AnotherIsElectedAndTheOldOneComesBack(t *testing.T) {
	t.Parallel()
	_, set := private(t, "mongo3")
	events, err := PrimaryPause{Set: set, Times: 1}.Inject(t.Context(), time.Minute)
	struck(t, set, events, err, 1)

	ctx, cancel := context.WithCancel(t.Context()) // cancelled when the primary is paused
	defer cancel()
	for i := range set {
		set[i].Server = cancelling{set[i].Server, cancel}
	}
	if _, err := (PrimaryPause{Set: set, Times: 2}).Inject(ctx, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	struck(t, set, nil, nil, 0)
}

// cancelling is a server whose pause cancels the run.
type cancelling struct {
	fault.Node
	cancel func()
}

func (c cancelling) Pause(ctx context.Context) error {
	defer c.cancel()
	return c.Node.Pause(ctx)
}
