package redlock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

func TestNew_RefusesWhatCannotBeAMajority(t *testing.T) {
	t.Parallel()
	good := []string{"redis://a", "redis://b", "redis://c"}
	for name, c := range map[string]struct {
		urls   []string
		prefix string
		ttl    time.Duration
	}{
		"no server":                     {nil, "", time.Second},
		"two servers":                   {good[:2], "", time.Second},
		"one server twice":              {append(good[:2:2], "redis://a:6379/1"), "", time.Second},
		"no URL":                        {append(good[:2:2], "c:6379"), "", time.Second},
		"a malformed URL":               {append(good[:2:2], "redis://user:secret@c:port"), "", time.Second},
		"a prefix with a colon":         {good, "a:b", time.Second},
		"a TTL of no whole millisecond": {good, "", time.Second + time.Microsecond},
		"a TTL that is too short":       {good, "", TTLMin - time.Millisecond},
	} {
		if s, err := New(c.urls, c.ttl, Options{Prefix: c.prefix}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %+v and %v, want an error that holds no password", name, s, err)
		}
	}
	for n, quorum := range map[int]int{3: 2, 4: 3, 5: 3, 6: 4, 7: 4} {
		urls := make([]string, n)
		for i := range urls {
			urls[i] = "redis://" + string(rune('a'+i))
		}
		s, err := New(urls, time.Second, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if s.quorum != quorum {
			t.Errorf("%d servers: the majority is %d, want %d", n, s.quorum, quorum)
		}
		s.Close()
	}
}

func TestClose_RefusesLaterRequests(t *testing.T) {
	t.Parallel()
	s := newStore(t, shared, time.Minute)
	lease := locktest.Taken(t, s, "k")
	s.Close()
	s.Close() // a second Close has no effect
	if _, err := s.TryAcquire(t.Context(), "k"); !errors.Is(err, ErrClosed) || errors.Is(err, locking.ErrBusy) {
		t.Errorf("acquire: got %v, want ErrClosed", err)
	}
	if _, err := s.Renew(t.Context(), lease); !errors.Is(err, ErrClosed) || errors.Is(err, locking.ErrLost) {
		t.Errorf("renew: got %v, want ErrClosed", err)
	}
	if err := s.Release(t.Context(), lease); !errors.Is(err, ErrClosed) || errors.Is(err, locking.ErrLost) {
		t.Errorf("release: got %v, want ErrClosed", err)
	}
}
