// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"shop/cmd/shop/lab"
	"shop/compose/local/stack/stacktest"
	"shop/locking/locktest"
	"shop/locking/servertest"
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
	const race = `{"seed":1,"strategies":["row"],"clients":4,"size":5,"fault":"none"}`
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
	args := []string{"race", "--postgres-url", url, "--lock-prefix", t.Name(), "--seed", "7", "--clients", "24", "--size", "20"}
	why := "no race"
	for n := 0; n < 3 && why != ""; n++ { // on a machine that is too busy the time of a race may end too early
		why = missingInRace(t, append(args, "--strategy", "naive", "--strategy", "redis+row", "--json"))
	}
	if why != "" {
		t.Error(why)
	}
	if out, err := shop(t, append(args, "--strategy", "row")...); err != nil || !strings.Contains(out, "sold ") {
		t.Errorf("row alone: %v\n%s", err, out)
	}
	for _, wrong := range [][]string{{"--strategy", "hope"}, {"--clients", "1"}, {"--fault", "fire"}, {"--redis-url", "nonsense"}} {
		if out, err := shop(t, append(args, wrong...)...); exitCode(err) != 2 {
			t.Errorf("%v: exit code %d, %v\n%s", wrong, exitCode(err), err, out)
		}
	}
}

// The page shows a command that repeats the race.
func TestRace_TheCommandOfThePageRunsForEachFlow(t *testing.T) {
	database, _ := newDatabase(t)
	dropRaces(t, database)
	ownWalletRaces(t, database)
	for flow, strategy := range map[string]string{"inventory": "redis+row", "transfer": "etcd-fenced", "wallet": "lockid"} {
		page := lab.Settings{Seed: 7, Flow: flow, Strategies: []string{strategy}, Clients: 4, Size: 4, Fault: lab.NoFault}
		_, args, _ := strings.Cut(page.Command(), "bin/shop ")
		out, err := shop(t, append(strings.Fields(args), "--postgres-url", database, "--lock-prefix", t.Name(), "--json")...)
		var race lab.Settings
		if decoded := json.Unmarshal([]byte(out), &race); err != nil || decoded != nil || !reflect.DeepEqual(race, page) {
			t.Errorf("%s: %v, %v: repeated %+v, want %+v\n%.300s", flow, err, decoded, race, page, out)
		}
	}
}

// The command of the page for a kill starts a Redis that keeps no data, and that is started again; here the test does.
func TestRace_KillsRedisIfItIsAllowed(t *testing.T) {
	database, _ := newDatabase(t)
	dropRaces(t, database)
	own := stacktest.Private(t, "redis-memory")[0]
	if err := own.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	page := lab.Settings{Seed: 3, Strategies: []string{"redis+row"}, Clients: 4, Size: 8, Fault: lab.Kill}.Command()
	servers, race, _ := strings.Cut(page, "bin/shop ")
	if servers != "bin/local exec --servers postgres,redis-memory --restart redis-memory -- " {
		t.Errorf("the page shows %s", page)
	}
	args := append(strings.Fields(race), "--postgres-url", database, "--redis-url", own.Env["SHOP_REDIS_URL"], "--lock-prefix", t.Name(), "--json")
	if out, err := shop(t, args...); exitCode(err) != 2 || !strings.Contains(err.Error(), "--lab-kill=redis") {
		t.Errorf("without the setting: %v\n%.300s", err, out)
	}
	t.Setenv("SHOP_LAB_KILL", "redis") // as exec --restart sets it
	if out, err := shop(t, args...); err != nil || !strings.Contains(out, `"kind":"down"`) || !strings.Contains(out, `"without its data"`) || !strings.Contains(out, `"text":"sold 8 of 8"`) {
		t.Errorf("with the setting: %v\n%.300s", err, out)
	}
}

// ownWalletRaces lets the races of wallets use databases with short names, and drops them when the test ends.
func ownWalletRaces(t *testing.T, databaseURL string) {
	t.Helper()
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(servertest.Env(t, "SHOP_MONGO_URL"))
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/cmd"
	t.Setenv("SHOP_MONGO_URL", u.String())
	db, err := mongoSettings{MongoURL: u.String()}.connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer disconnect(db)
		for lane := 1; lane <= 2; lane++ {
			name := fmt.Sprintf("cmd_%s_race_%d", config.RuntimeParams["search_path"], lane)
			if err := db.Client().Database(name).Drop(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

// missingInRace runs a race of naive and redis+row, and returns what it does not show.
func missingInRace(t *testing.T, args []string) string {
	t.Helper()
	out, err := shop(t, args...)
	var result struct {
		Seed  int
		Lanes []struct {
			Strategy string
			Verdict  struct {
				Figures map[string]int
				Holds   bool
			}
		}
	}
	if decoded := json.Unmarshal([]byte(out), &result); decoded != nil || len(result.Lanes) != 2 || result.Seed != 7 {
		t.Fatalf("%v, %v\n%.300s", err, decoded, out)
	}
	naive, double := result.Lanes[0].Verdict, result.Lanes[1].Verdict
	if !double.Holds || (exitCode(err) == 1) == naive.Holds {
		t.Errorf("exit code %d, naive %+v, redis+row %+v", exitCode(err), naive, double)
	}
	if naive.Figures["sold"] <= 20 || double.Figures["sold"] != 20 {
		return fmt.Sprintf("naive %+v, redis+row %+v", naive, double)
	}
	return ""
}
