// SPDX-License-Identifier: MIT

package locking_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shop/locking"
)

func TestObserver_ReceivesEveryEvent(t *testing.T) {
	s := &script{acquire: failing(0, 1, locking.ErrBusy), renew: failing(1, 2, errDown)}
	p := s.play(t, steady, func(ctx context.Context, _ locking.Lease) error { return work(ctx, 5*time.Second) })
	granted := locking.Event{Keys: one, Owner: "owner-1", Fence: 2}
	event := func(e locking.Event, kind locking.Kind, wait, held float64, err error) locking.Event {
		e.Kind, e.Wait, e.Held, e.Err = kind, seconds(wait)[0], seconds(held)[0], err
		return e
	}
	want := []locking.Event{
		event(locking.Event{Keys: one}, locking.Attempt, 0, 0, nil),
		event(locking.Event{Keys: one}, locking.Busy, 0, 0, locking.ErrBusy),
		event(locking.Event{Keys: one}, locking.Attempt, 1, 0, nil),
		event(granted, locking.Acquired, 1, 0, nil),
		event(granted, locking.Renewed, 0, 2, nil),
		event(granted, locking.RenewFailed, 0, 4, errDown),
		event(granted, locking.Renewed, 0.5, 4.5, nil),
		event(granted, locking.Released, 0, 5, nil),
	}
	if p.err != nil || !reflect.DeepEqual(p.events, want) {
		t.Errorf("got %v and\n%+v, want\n%+v", p.err, p.events, want)
	}
}

func TestObserver_ReceivesTheReasonOfAFailedAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last locking.Event
		o := locking.Options{Observer: func(e locking.Event) { last = e }}
		_, err := locking.Acquire(t.Context(), &script{acquire: failing(0, 1, errDown)}, o, one...)
		if last.Kind != locking.Failed || !errors.Is(last.Err, errDown) || err == nil {
			t.Errorf("store down: got %+v", last)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = locking.Acquire(ctx, taken(1000), o, one...)
		if last.Kind != locking.TimedOut || last.Wait != time.Second || last.Err != err {
			t.Errorf("busy until ctx ended: got %+v", last)
		}
	})
}

func TestObservers_CallsAllInOrder(t *testing.T) {
	var received []string
	observer := func(name string) locking.Observer {
		return func(e locking.Event) { received = append(received, name+string(e.Kind)) }
	}
	locking.Observers(nil, observer("a "), nil, observer("b "))(locking.Event{Kind: locking.Lost})
	locking.Observers(observer("c "), nil)(locking.Event{Kind: locking.Busy})
	if want := []string{"a lost", "b lost", "c busy"}; !reflect.DeepEqual(received, want) {
		t.Errorf("received %q, want %q", received, want)
	}
	if locking.Observers() != nil || locking.Observers(nil, nil) != nil {
		t.Error("the Observer of no Observers is not nil")
	}
}

func TestLog_WritesOneLineForEachEvent(t *testing.T) {
	var out bytes.Buffer
	log := locking.Log(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})))
	log(locking.Event{Kind: locking.Busy, Keys: []string{"a", "b"}, Wait: time.Second, Err: locking.ErrBusy})
	log(locking.Event{Kind: locking.Lost, Keys: one, Owner: "me", Fence: 7, Held: 2 * time.Second, Err: errDown})
	want := `level=DEBUG msg=lock event=busy key="[a b]" wait=1s err="locking: busy: another holder has the key"
level=WARN msg=lock event=lost key=account/42 owner=me fence=7 held=2s err="connection refused"
`
	if out.String() != want {
		t.Errorf("got\n%s, want\n%s", &out, want)
	}
}

func TestLog_WarnsOfTimeoutsFailuresAndLosses(t *testing.T) {
	for kind, warns := range map[locking.Kind]bool{
		locking.Attempt: false, locking.Busy: false, locking.Acquired: false, locking.Renewed: false, locking.Released: false,
		locking.TimedOut: true, locking.Failed: true, locking.RenewFailed: true, locking.Lost: true, locking.Left: true,
	} {
		var out bytes.Buffer
		locking.Log(slog.New(slog.NewJSONHandler(&out, nil)))(locking.Event{Kind: kind, Keys: one}) // level info and up
		if (strings.Count(out.String(), "\n") == 1) != warns {
			t.Errorf("%s: got %q, want a line: %t", kind, &out, warns)
		}
	}
}
