// SPDX-License-Identifier: MIT

package redisfault

import (
	"testing"

	"shop/locking/servertest"
	"shop/locking/servertest/daemon"

	"github.com/redis/go-redis/v9"
)

const info = "# Server\r\nrun_id:abc\r\n\r\n# Commandstats\r\n" +
	"cmdstat_evalsha:calls=40,usec=9,usec_per_call=1.00,rejected_calls=0,failed_calls=0\r\n" +
	"cmdstat_set:calls=2,usec=9\r\ncmdstat_get:calls=900,usec=9\r\ncmdstat_evalsha_ro:calls=7,usec=9\r\ncmdstat_info:calls=3,usec=9\r\n"

func TestCallsIn_CountsScripts(t *testing.T) {
	if life, calls := callsIn(info); life != "abc" || calls != 40 {
		t.Errorf("%s, %d calls; want abc, 40", life, calls)
	}
}

// A lock that counts its own events but never calls Redis causes no calls.
func TestCountCalls_CountsOnlyCallsSinceItsStart(t *testing.T) {
	server := servertest.Start(t, daemon.Redis()) // its own server, since the counts include all clients
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	script := func() {
		if err := client.Eval(t.Context(), "return 1", []string{"{1}lock:a"}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	script()
	counting, err := CountCalls(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Get(t.Context(), "{1}lock:a").Err(); err == nil {
		t.Fatal("the key exists")
	}
	all, after, err := counting.Stop(t.Context())
	if err != nil || all != 0 || after != 0 {
		t.Errorf("%d calls, %d after a kill (%v); want none", all, after, err)
	}
	if counting, err = CountCalls(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	script()
	script()
	if all, after, err = counting.Stop(t.Context()); err != nil || all != 2 || after != 0 {
		t.Errorf("%d calls, %d after a kill (%v); want 2, 0", all, after, err)
	}
}
