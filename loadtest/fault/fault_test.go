package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// log stands for replicas or a server, and writes down what is done to them.
type log struct {
	done  []string
	fails string
}

func (l *log) note(what string) error {
	l.done = append(l.done, what)
	if what == l.fails {
		return errors.New("no")
	}
	return nil
}

type replicas struct{ log }

func (r *replicas) Len() int                            { return 3 }
func (r *replicas) Kill(_ context.Context, n int) error { return r.note(fmt.Sprint("kill ", n)) }
func (r *replicas) Start(_ context.Context, n int, extra ...string) error {
	return r.note(strings.Join(append([]string{fmt.Sprint("start ", n)}, extra...), " "))
}

type server struct{ log }

func (s *server) Kill(context.Context) error { return s.note("kill") }

func (s *server) Start(ctx context.Context) error { return errors.Join(s.note("start"), ctx.Err()) }

func TestCrash_KillsOneAfterTheOtherAndStartsEachAgainBeforeTheNext(t *testing.T) {
	r := &replicas{}
	events, err := Crash{Victims: r, Times: 5}.Inject(t.Context(), 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"kill 0", "start 0", "kill 1", "start 1", "kill 2", "start 2", "kill 0", "start 0", "kill 1", "start 1"}
	if diff := cmp.Diff(want, r.done); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i, e := range events {
		if e.Hits != 1 || e.Until.Before(e.At) || i > 0 && e.At.Before(events[i-1].Until) {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	if n := sum(events)["crashes"]; n != 5 {
		t.Errorf("%d crashes", n)
	}
	if len(events) != 5 || events[4].At.Sub(events[0].At) < 35*time.Millisecond {
		t.Errorf("%d kills, not spread over the time: %+v", len(events), events)
	}
}

func TestCrash_AReplicaThatDoesNotComeBackIsAnError(t *testing.T) {
	r := &replicas{log{fails: "start 1"}}
	if events, err := (Crash{Victims: r, Times: 5}).Inject(t.Context(), time.Millisecond); err == nil || len(events) != 2 {
		t.Errorf("%v, %d events; want an error, and the two kills", err, len(events))
	}
}

func TestDown_IsStartedAgainAlsoWhenTheRunIsCalledOff(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &server{}
	if _, err := (Down{Name: "redis", Server: s, Part: 0.5}).Inject(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	if diff := cmp.Diff([]string{"kill", "start"}, s.done); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDown_ServerThatDoesNotStartIsAnError(t *testing.T) {
	s := &server{log{fails: "start"}}
	if _, err := (Down{Name: "redis", Server: s}).Inject(t.Context(), 0); err == nil {
		t.Error("no error")
	}
}

func connect(t *testing.T) (*redis.Client, string) {
	t.Helper()
	options, err := redis.ParseURL(env(t, "SHOP_REDIS_URL"))
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	prefix := fmt.Sprintf("fault[%d]*%d", os.Getpid(), time.Now().UnixNano()) // with what a pattern would mean
	t.Cleanup(func() {
		ctx := context.Background()
		for _, name := range []string{prefix + "{1}lock:a", prefix + "{1}fence", "x" + prefix + "{1}lock:a"} {
			client.Del(ctx, name)
		}
		_ = client.Close()
	})
	return client, prefix
}

func TestLockLost_DeletesTheLocksOfItsPrefixAndCountsThoseThatWereThere(t *testing.T) {
	client, prefix := connect(t)
	lock, fence, other := prefix+"{1}lock:a", prefix+"{1}fence", "x"+prefix+"{1}lock:a"
	for _, name := range []string{lock, fence, other} {
		if err := client.Set(t.Context(), name, "1:me", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	}
	events, err := LockLost{Client: client, Prefix: prefix, Every: time.Millisecond}.Inject(t.Context(), 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != 1 || events[0].Hits != 1 || sum(events)["locks_deleted"] != 1 || !events[0].Until.After(events[0].At) {
		t.Errorf("events %+v, want one with one hit", events)
	}
	for name, want := range map[string]int64{lock: 0, fence: 1, other: 1} {
		if n, err := client.Exists(t.Context(), name).Result(); err != nil || n != want {
			t.Errorf("%s: %d there (%v), want %d", name, n, err, want)
		}
	}
}

func TestLockLost_NothingThereIsNoHit(t *testing.T) {
	client, prefix := connect(t)
	events, err := LockLost{Client: client, Prefix: prefix, Every: time.Millisecond}.Inject(t.Context(), 5*time.Millisecond)
	if err != nil || events[0].Hits != 0 {
		t.Errorf("events %+v, error %v; want no hits", events, err)
	}
}
