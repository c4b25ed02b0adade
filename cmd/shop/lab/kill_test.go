// SPDX-License-Identifier: MIT

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/compose/local/stack"
	"shop/compose/local/stack/stacktest"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// mayKill lets a Lab kill a Redis.
func mayKill(redisURL string) func(*Config) {
	return func(cfg *Config) { cfg.RedisURL, cfg.KillRedis = redisURL, true }
}

// keptRedis starts a Redis of the test's own, of a kind of package stack, which starts it again when it ends.
func keptRedis(t *testing.T, kind string) (redisURL string) {
	t.Helper()
	server := stacktest.Private(t, kind)[0]
	if err := server.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	return server.Env["SHOP_REDIS_URL"]
}

// mortalRedis starts a Redis that nothing starts again.
func mortalRedis(t *testing.T) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: servertest.FreeAddr(t)})
	_, port, _ := net.SplitHostPort(client.Options().Addr)
	cmd := exec.Command(servertest.Env(t, "SHOP_REDIS_SERVER"), "--bind", "127.0.0.1", "--port", port, "--dir", t.TempDir(), "--save", "")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	all, err := stack.Attach(servertest.Env(t, "SHOP_STACK"))
	if err == nil {
		err = all.Adopt(cmd.Process.Pid)
	}
	if err != nil {
		t.Fatal(err)
	}
	locktest.Eventually(t, "Redis answers", func() bool { return client.Ping(t.Context()).Err() == nil })
	return client
}

// notes returns the notes of the events of a kind.
func (l Lane) notes(kind string) (list []string) {
	for _, e := range l.Events {
		if e.Kind == kind {
			list = append(list, e.Note)
		}
	}
	return list
}

func TestRace_WithoutItsServersDataRedisOnlyOversells(t *testing.T) {
	t.Parallel()
	s := serve(t, mayKill(keptRedis(t, "redis-memory")))
	settings := Settings{Seed: 3, Strategies: []string{"redis-only", "redis+row"}, Clients: 24, Size: 60, Fault: Kill}
	s.shows(settings, func(r Result) string {
		for _, l := range r.Lanes {
			if back := l.notes("back"); r.Error != "" || !slices.Contains(back, "without its data") || slices.Contains(back, "with its data") {
				t.Errorf("%s: %q, back %q", l.Strategy, r.Error, back)
			}
		}
		switch {
		case r.Lanes[0].Verdict.Holds || !strings.Contains(r.Lanes[0].Verdict.Text, "disappointed"):
			return "redis-only did not oversell"
		case r.Lanes[1].Verdict.Text != "sold 60 of 60":
			return "redis+row did not sell the stock"
		}
		for _, l := range r.Lanes {
			if l.lacks("lost") != "" && l.lacks("left") != "" { // left: the release met the connection to the killed server
				return l.Strategy + ": no holder heard of it"
			}
		}
		return r.Lanes[0].lacks("killed", "down", "back", "gone") + r.Lanes[1].lacks("killed", "down", "back", "gone")
	})
}

// With its data the lock outlives the server: that redis-only oversells above is due to the loss of the data.
func TestRace_WithItsServersDataRedisOnlySellsExactly(t *testing.T) {
	t.Parallel()
	s := serve(t, mayKill(keptRedis(t, "redis")))
	settings := Settings{Seed: 3, Strategies: []string{"redis-only"}, Clients: 24, Size: 60, Fault: Kill}
	s.shows(settings, func(r Result) string {
		l := r.Lanes[0]
		if slices.Contains(l.kinds(), "lost") {
			return "a lease was lost"
		}
		if !l.Verdict.Holds || r.Error != "" || !slices.Equal(l.notes("back"), []string{"with its data"}) || slices.Contains(l.kinds(), "gone") {
			t.Errorf("redis-only: %q, back %q, %+v", r.Error, l.notes("back"), l.Verdict)
		}
		if l.Verdict.Text != "sold 60 of 60" {
			return "redis-only did not sell the stock"
		}
		return l.lacks("killed", "down", "back")
	})
}

// The race reports the fault that went wrong, and PostgreSQL is counted all the same.
func TestRace_ThatItsServerIsNotBackIsSaidBesideTheVerdict(t *testing.T) {
	t.Parallel()
	client := mortalRedis(t)
	s := serve(t, mayKill("redis://"+client.Options().Addr))
	path := s.start(Settings{Seed: 3, Strategies: []string{"redis+row"}, Clients: 24, Size: 20, Fault: Kill})
	kinds, last := s.stream(path+"/events", "")
	if n := len(kinds); n < 2 || kinds[n-2] != "outage" || kinds[n-1] != "verdict" || !strings.Contains(last, `"text":"sold 20 of 20"`) {
		t.Errorf("%d messages, the last %s", n, last)
	}
	var r Result
	s.send("GET", path, "", &r)
	if want := fmt.Sprintf("Redis at %s was killed, and is not back after 10s: start it again", client.Options().Addr); !strings.HasPrefix(r.Error, want) {
		t.Errorf("%q, want %q", r.Error, want)
	}
	if !slices.Contains(r.Lanes[0].kinds(), "down") || slices.Contains(r.Lanes[0].kinds(), "back") {
		t.Errorf("events %v", r.Lanes[0].kinds())
	}
}

// openKiller returns a killer of lanes that have sent a request each, their attempt 1.
func openKiller(t *testing.T, redisURL string, lanes int) *killer {
	t.Helper()
	k, err := newKiller(Config{RedisURL: redisURL, LockPrefix: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.close)
	for range lanes {
		r := newRecord(time.Now())
		r.begin(1, 1, 0)
		k.records = append(k.records, r)
	}
	return k
}

// The kill is that of all lanes, also of one whose request comes when the server is back.
func TestKiller_ALaneThatComesLateKillsNoSecondTime(t *testing.T) {
	t.Parallel()
	k := openKiller(t, keptRedis(t, "redis-memory"), 2)
	early, late := k.records[0], k.records[1]
	if !k.kill(t.Context(), early, 1) {
		t.Error("the first request killed nothing")
	}
	if k.kill(t.Context(), late, 1) {
		t.Error("the late request has killed too")
	}
	if err := k.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for r, want := range map[*record][]string{early: {"asked", "killed", "down", "back"}, late: {"asked", "down", "back"}} {
		_, events := r.now(0)
		if got := (Lane{Events: events}).kinds(); !slices.Equal(got, want) {
			t.Errorf("events %v, want %v", got, want)
		}
	}
}

func TestKiller_ACancelledRaceDoesNotWaitForTheServer(t *testing.T) {
	t.Parallel()
	client := mortalRedis(t)
	k := openKiller(t, "redis://"+client.Options().Addr, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go k.kill(ctx, k.records[0], 1)
	locktest.Eventually(t, "Redis is down", func() bool {
		_, events := k.records[0].now(0)
		return slices.Contains((Lane{Events: events}).kinds(), "down")
	})
	cancel()
	begin := time.Now()
	if err := k.wait(ctx); !errors.Is(err, context.Canceled) || time.Since(begin) > backTime/2 {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
}

func TestRace_KillIsRefusedWithoutTheSettingAndRedisStillRuns(t *testing.T) {
	t.Parallel()
	client := mortalRedis(t)
	forbidden := serve(t, func(cfg *Config) { cfg.RedisURL = "redis://" + client.Options().Addr })
	allowed := serve(t, mayKill("redis://"+client.Options().Addr))
	const race = `{"seed":1,"strategies":["redis+row"],"clients":4,"size":4,"fault":"kill"}`
	var answer struct{ Error string }
	if res := forbidden.send("POST", "/lab/races", race, &answer); res.StatusCode != http.StatusBadRequest || !strings.Contains(answer.Error, "set --lab-kill=redis or SHOP_LAB_KILL=redis") {
		t.Errorf("%s %q", res.Status, answer.Error)
	}
	if strings.Contains(forbidden.text("/"), `"kill":`) || !strings.Contains(allowed.text("/"), `"kill":`) {
		t.Error("the page does not offer exactly what is allowed")
	}
	for _, flow := range []string{"transfer", "wallet"} { // of which no store can be killed so
		other := fmt.Sprintf(`{"flow":%q,"seed":1,"clients":4,"size":4,"fault":"kill"}`, flow)
		if res := allowed.send("POST", "/lab/races", other, &answer); res.StatusCode != http.StatusBadRequest || !strings.Contains(answer.Error, `no fault "kill" of the flow `+flow) {
			t.Errorf("%s: %s %q", flow, res.Status, answer.Error)
		}
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Error("Redis was killed: ", err)
	}
}

// A user that may not use SHUTDOWN.
func TestRace_ARedisThatRefusesToBeKilledStillRuns(t *testing.T) {
	t.Parallel()
	client := mortalRedis(t)
	if err := client.Do(t.Context(), "ACL", "SETUSER", "default", "-shutdown").Err(); err != nil {
		t.Fatal(err)
	}
	s := serve(t, mayKill("redis://"+client.Options().Addr))
	r := s.race(Settings{Seed: 3, Strategies: []string{"redis+row"}, Clients: 4, Size: 4, Fault: Kill})
	if !strings.Contains(r.Error, "refuses to be killed") || !strings.Contains(r.Error, "SHUTDOWN") || r.Lanes[0].Verdict.Text != "sold 4 of 4" || slices.Contains(r.Lanes[0].kinds(), "down") {
		t.Errorf("%q, %+v, %v", r.Error, r.Lanes[0].Verdict, r.Lanes[0].kinds())
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Error("Redis was killed: ", err)
	}
}
