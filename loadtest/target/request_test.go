// SPDX-License-Identifier: MIT

package target

import (
	"strings"
	"testing"
	"time"

	"shop/loadtest/traffic"
)

const mixed = `services: [http://127.0.0.1:1, http://127.0.0.1:2]
clients: [{name: alice}, {name: bob}]
supply: {coffee: 10, tea: 10}
requests:
  - {name: buy, weight: 3, path: '/{{.Client}}', takes: 1..3, body: '{"key": "{{.Key}}", "sku": "{{.Object}}", "n": {{.Units}}}'}
  - {name: move, path: '/{{.Object}}/{{.Other}}', body: '["{{pick "a" "b"}}", {{int 1 3}}]'}
  - {name: look, method: GET, path: '/{{.Object}}'}
  - {name: cancel, after: buy, share: 50%, path: '/orders/{{.Answer.id}}', gives: true}
  - {name: spy, after: buy, share: 100%, as: other, method: GET, path: '/orders/{{.Answer.id}}', expect: [404]}
  - {name: lost, after: buy, share: 100%, path: '/{{.Answer.nothing}}'}
`

func drawOf(t *testing.T, f *File, run uint32) traffic.Plan {
	t.Helper()
	drawn, err := f.draw(traffic.Load{Rate: 500, Duration: 2 * time.Second, Seed: 7, Replicas: 2}, run)
	if err != nil {
		t.Fatal(err)
	}
	return drawn
}

func TestPlan_SameSeedSameRequestsUnderNewKeys(t *testing.T) {
	f := parsed(t, mixed)
	first := drawOf(t, f, 1)
	second := drawOf(t, f, 2)
	if len(first.Intents) != 1000 || len(first.Schedule) != 1100 {
		t.Errorf("%d requests of %d keys, want 1000 and 100 duplicates", len(first.Schedule), len(first.Intents))
	}
	for i, a := range first.Intents {
		b := second.Intents[i]
		if a.Key == b.Key || a.Path != b.Path || strings.ReplaceAll(string(a.Body), a.Key, b.Key) != string(b.Body) || a.Client != b.Client {
			t.Fatalf("request %d: %s %s and %s %s", i, a.Path, a.Body, b.Path, b.Body)
		}
	}
}

func TestPlan_DrawsByWeightAmongAllClientsAndObjects(t *testing.T) {
	drawn := drawOf(t, parsed(t, mixed), 1)
	count := map[string]int{}
	for _, i := range drawn.Intents {
		s := of(*i)
		count[string(i.Action)]++
		count[s.Client]++
		count["on "+s.Object]++
		if i.GivesUp {
			count["gives up"]++
		}
		if i.Action == "move" && (s.Object == s.Other || len(i.Contends) != 2) || i.Action == "buy" && len(i.Contends) != 1 {
			t.Fatalf("%s of %s and %s contends for %v", i.Action, s.Object, s.Other, i.Contends)
		}
		if i.Reads != (i.Action == "look") || i.Reads && i.GivesUp {
			t.Fatalf("%s: reads %v, gives up %v", i.Action, i.Reads, i.GivesUp)
		}
	}
	for name, want := range map[string]int{"buy": 600, "move": 200, "look": 200, "alice": 500, "bob": 500, "on coffee": 500, "on tea": 500, "gives up": 40, "cancel": 0} {
		if got := count[name]; got < want*7/10 || got > want*13/10 {
			t.Errorf("%s: %d of 1000, want about %d", name, got, want)
		}
	}
}

// The load of a file that names none: before bursts, no two requests of it had one time.
func TestPlan_BurstsOfDifferentKeysForOneObjectAtTheDefaultLoad(t *testing.T) {
	f := parsed(t, strings.Replace(mixed, "  - {name: move", "  - {name: wish, path: /wishes, objects: [coffee]}\n  - {name: move", 1))
	drawn, err := f.draw(traffic.Load{Rate: f.Rate, Duration: f.Duration, Seed: f.Seed, Replicas: 2}, 1)
	if err != nil {
		t.Fatal(err)
	}
	type moment struct {
		keys     map[string]string // object by key
		replicas map[int]bool
	}
	at := map[time.Duration]moment{}
	for _, r := range drawn.Schedule {
		if at[r.At].keys == nil {
			at[r.At] = moment{map[string]string{}, map[int]bool{}}
		}
		at[r.At].keys[r.Intent.Key], at[r.At].replicas[r.Replica] = of(*r.Intent).Object, true
	}
	bursts := map[string]int{}
	for when, m := range at {
		if len(m.keys) < 10 {
			continue
		}
		objects := map[string]int{}
		for _, object := range m.keys {
			objects[object]++
		}
		hot := "coffee"
		if objects["tea"] > objects["coffee"] {
			hot = "tea"
		}
		// Only a wish, which is of coffee alone, may be for another object.
		if bursts[hot]++; objects[hot] < len(m.keys)*6/10 || hot == "coffee" && objects["tea"] > 0 || len(m.replicas) != 2 || len(m.keys) > 51 {
			t.Errorf("at %v: %v, to replicas %v", when, objects, m.replicas)
		}
	}
	if bursts["coffee"] < 3 || bursts["coffee"]+bursts["tea"] < 6 {
		t.Errorf("bursts: %v", bursts)
	}
}

func TestPlan_WhatFollowsTakesTheObjectOfTheRequestBefore(t *testing.T) {
	f := parsed(t, strings.Replace(mixed, "  - {name: cancel, after: buy, share: 50%,", "  - {name: checkout, after: buy, share: 100%, takes: 1, path: /x, objects: [tea, coffee], body: '[\"{{.Object}}\"]'}\n  - {name: cancel, after: buy, share: 50%,", 1))
	drawn := drawOf(t, f, 1)
	followed := 0
	for _, i := range drawn.Intents {
		for _, r := range f.followUp(traffic.Record{Intent: *i, Outcome: traffic.OK, Body: []byte(`{"id": 1}`)}) {
			if s := of(*r.Intent); r.Intent.Action == "checkout" {
				if followed++; s.Object != of(*i).Object || !strings.Contains(string(r.Intent.Body), s.Object) {
					t.Fatalf("checkout of %s follows a purchase of %s: %s", s.Object, of(*i).Object, r.Intent.Body)
				}
			}
		}
	}
	if followed < 100 {
		t.Errorf("%d checkouts", followed)
	}
	parsed(t, strings.Replace(mixed, "{name: lost, after: buy,", "{name: lost, after: buy, takes: 1,", 1))
}

func TestPlan_ADayOfLoadIsSpreadOverTheDay(t *testing.T) {
	load := traffic.Load{Rate: 2, Duration: 24 * time.Hour, Seed: 1, Replicas: 2}
	drawn, err := parsed(t, small).draw(load, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, request := range drawn.Schedule {
		if request.At < 0 || i > 0 && request.At < drawn.Schedule[i-1].At {
			t.Fatalf("request %d comes at %v", i, request.At)
		}
	}
	if last := drawn.Schedule[len(drawn.Schedule)-1].At; last > load.Duration || last < load.Duration-time.Second {
		t.Errorf("the last request comes at %v", last)
	}
}

func TestPlan_ASuccessIsFollowedWithWhatItsAnswerHolds(t *testing.T) {
	f := parsed(t, mixed)
	drawn := drawOf(t, f, 1)
	sent := map[string]int{}
	buys := 0
	for _, i := range drawn.Intents {
		if i.Action != "buy" {
			continue
		}
		buys++
		record := traffic.Record{Intent: *i, Outcome: traffic.OK, Body: []byte(`{"id": 12345678901234567890}`)}
		again := f.followUp(record)
		for n, request := range f.followUp(record) {
			got := request.Intent
			sent[string(got.Action)]++
			if got.Path != "/orders/12345678901234567890" || got.Key == i.Key || got.Key != again[n].Intent.Key {
				t.Fatalf("%+v", got)
			}
			if other := got.Client != i.Client; other != (got.Action == "spy") {
				t.Fatalf("%s comes from client %d, after client %d", got.Action, got.Client, i.Client)
			}
			if of(*got).Object != of(*i).Object || of(*got).Units != of(*i).Units {
				t.Fatalf("it follows %v, and is about %v", of(*i), of(*got))
			}
		}
		if refused := f.followUp(traffic.Record{Intent: *i, Outcome: traffic.Rejected}); len(refused) > 0 {
			t.Fatal("a refusal is followed")
		}
	}
	if sent["spy"] != buys || sent["lost"] != 0 || sent["cancel"] < buys*4/10 || sent["cancel"] > buys*6/10 {
		t.Errorf("after %d purchases: %v", buys, sent)
	}
}
