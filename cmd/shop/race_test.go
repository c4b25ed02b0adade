package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"shop/locking/locktest"
)

// dropRaces drops the schemas of the races of a shop when the test ends.
func dropRaces(t *testing.T, databaseURL string) {
	t.Helper()
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	schema := config.RuntimeParams["search_path"]
	t.Cleanup(func() {
		conn, err := pgx.ConnectConfig(context.Background(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), "DROP SCHEMA IF EXISTS "+schema+"_race_1, "+schema+"_race_2 CASCADE"); err != nil {
			t.Error(err)
		}
	})
}

func TestServe_ThePageIsServedInTheLabOnly(t *testing.T) {
	url, keys := newDatabase(t)
	dropRaces(t, url)
	plain := startReplica(t, url, keys["alice"])
	if status, body := plain.get(plain.url + "/"); status != 404 {
		t.Errorf("without --lab: %d %s", status, body)
	}
	if status, _ := plain.send("POST", "/lab/races", "k", `{}`); status != 404 {
		t.Errorf("a race without --lab: %d", status)
	}
	if out := plain.out.String(); out != "" {
		t.Errorf("without --lab it prints %q", out)
	}
	r := startReplica(t, url, keys["alice"], "--lab")
	locktest.Eventually(t, "the address of the page", func() bool { return r.out.String() == r.url+"/\n" })
	if status, body := r.get(r.url + "/"); status != 200 || !strings.Contains(body, "<title>shop lab") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := r.buy("k"); status != 201 {
		t.Errorf("the API beside the page: %d %s", status, body)
	}
	const race = `{"seed":1,"strategies":["row"],"clients":4,"stock":5,"fault":"none"}`
	status, body := r.send("POST", "/lab/races", "", race)
	var answer struct{ ID string }
	if err := json.Unmarshal([]byte(body), &answer); status != 201 || err != nil {
		t.Fatal(status, body, err)
	}
	if status, body := r.get(r.url + "/lab/races/" + answer.ID); status != 200 || !strings.Contains(body, `"text":"sold 5 of 5"`) {
		t.Errorf("%d %.300s", status, body)
	}
	if out, err := shop(t, "audit", "--postgres-url", url, "--mongo-url", ""); err != nil {
		t.Errorf("a race changed the shop: %v\n%s", err, out)
	}
}

func TestRace_RepeatsTheVerdictOfThePage(t *testing.T) {
	url, _ := newDatabase(t)
	dropRaces(t, url)
	args := []string{"race", "--postgres-url", url, "--lock-prefix", t.Name(), "--seed", "7", "--clients", "64", "--stock", "30"}
	out, err := shop(t, append(args, "--strategy", "naive", "--strategy", "redis+row", "--json")...)
	var result struct {
		Seed  int
		Lanes []struct {
			Strategy string
			Verdict  struct {
				Sold, Oversold int
				Holds          bool
			}
		}
	}
	if decoded := json.Unmarshal([]byte(out), &result); decoded != nil || exitCode(err) != 1 || len(result.Lanes) != 2 {
		t.Fatalf("exit code %d: %v, %v\n%.300s", exitCode(err), err, decoded, out)
	}
	naive, double := result.Lanes[0].Verdict, result.Lanes[1].Verdict
	if result.Seed != 7 || naive.Oversold < 1 || naive.Holds || double.Sold != 30 || !double.Holds {
		t.Errorf("seed %d, naive %+v, redis+row %+v", result.Seed, naive, double)
	}
	if out, err := shop(t, append(args, "--strategy", "row")...); err != nil || !strings.Contains(out, "sold 30 of 30\n") {
		t.Errorf("row alone: %v\n%s", err, out)
	}
	for _, wrong := range [][]string{{"--strategy", "hope"}, {"--clients", "1"}, {"--fault", "fire"}, {"--redis-url", "nonsense"}} {
		if out, err := shop(t, append(args, wrong...)...); exitCode(err) != 2 {
			t.Errorf("%v: exit code %d, %v\n%s", wrong, exitCode(err), err, out)
		}
	}
}
