// SPDX-License-Identifier: MIT

package wallet

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
)

var quickLoad = traffic.Load{Rate: 200, Duration: 6 * time.Second, Seed: 1, Replicas: 3}

// places returns the index of each wallet.
func places(plan traffic.Plan) map[uuid.UUID]int {
	place := map[uuid.UUID]int{}
	for n, w := range money.Accounts(plan) {
		place[w.ID] = n
	}
	return place
}

// load returns the requests of a plan, without those beside the load.
func load(plan traffic.Plan) []traffic.ScheduledRequest {
	return slices.DeleteFunc(slices.Clone(plan.Schedule), func(s traffic.ScheduledRequest) bool { return s.Intent.Reads || len(s.Intent.Refusals) > 0 })
}

// bursts returns the requests of a plan by the moment at which they are sent.
func bursts(plan traffic.Plan) map[time.Duration][]traffic.ScheduledRequest {
	at := map[time.Duration][]traffic.ScheduledRequest{}
	for _, s := range load(plan) {
		at[s.At] = append(at[s.At], s)
	}
	maps.DeleteFunc(at, func(_ time.Duration, requests []traffic.ScheduledRequest) bool { return len(requests) <= 2 })
	return at
}

func TestNewPlan_SameSeedSamePlanOtherSeedOtherPlan(t *testing.T) {
	if !reflect.DeepEqual(NewPlan(quickLoad), NewPlan(quickLoad)) {
		t.Error("two plans of one load differ")
	}
	other := quickLoad
	other.Seed = 2
	if reflect.DeepEqual(money.Accounts(NewPlan(quickLoad)), money.Accounts(NewPlan(other))) {
		t.Error("another seed gives the same wallets")
	}
}

func TestNewPlan_EachIsSentByTheOwnerOfItsWalletToItsRoute(t *testing.T) {
	plan := NewPlan(quickLoad)
	place := places(plan)
	if len(plan.Load()) != 1200 || len(place) != 19 || plan.Clients != 18 {
		t.Fatalf("%d intents, %d wallets, %d clients", len(plan.Load()), len(place), plan.Clients)
	}
	names := map[string]bool{}
	for _, i := range plan.Load() {
		var body struct {
			To     uuid.UUID
			Amount int64
		}
		if err := json.Unmarshal(i.Body, &body); err != nil {
			t.Fatal(err)
		}
		at, route := move(*i).From, "/debits"
		switch i.Action {
		case Credit:
			at, route = move(*i).To, "/credits"
		case Pay:
			route = "/payments"
		}
		if owner := money.Accounts(plan)[place[at]].Client; owner != i.Client || i.Path != "/v1/wallets/"+at.String()+route || names[i.Key] {
			t.Errorf("client %d sends %s, named %s, for a wallet of %d", i.Client, i.Path, i.Key, owner)
		}
		if body.Amount != move(*i).Amount || body.Amount < 1 || i.Action == Pay && body.To != move(*i).To || i.Action != Pay && strings.Contains(string(i.Body), "to") {
			t.Errorf("%s is sent for %+v", i.Body, move(*i))
		}
		names[i.Key] = true
	}
}

func TestNewPlan_OneInTenIsSentTwiceAtOnceToTwoReplicas(t *testing.T) {
	plan := NewPlan(quickLoad)
	twice := map[traffic.Action]int{}
	all := 0
	for i, request := range plan.Schedule {
		if i == 0 {
			continue
		}
		before := plan.Schedule[i-1]
		if request.At < before.At {
			t.Fatalf("request %d is earlier than the one before", i)
		}
		if request.Intent == before.Intent {
			all++
			twice[request.Intent.Action]++
			if request.At != before.At || request.Replica == before.Replica {
				t.Errorf("duplicates %+v and %+v: want one moment and two replicas", before, request)
			}
		}
	}
	if all != 120 || twice[Credit] < 10 || twice[Debit] < 10 || twice[Pay] < 10 {
		t.Errorf("%d duplicates: %v", all, twice)
	}
}

func TestNewPlan_AmpleWalletsCoverTheirPaymentsAndOthersDoNot(t *testing.T) {
	for seed := range int64(20) {
		load := quickLoad
		load.Seed = seed
		plan := NewPlan(load)
		asked := map[uuid.UUID]int64{}
		for _, i := range plan.Load() {
			asked[move(*i).From] += move(*i).Amount
		}
		enough := 0
		for n, w := range money.Accounts(plan) {
			switch {
			case w.Ample && w.Opening < asked[w.ID]:
				t.Errorf("seed %d: wallet %d has %d and is to pay %d", seed, n, w.Opening, asked[w.ID])
			case w.Ample:
				enough++
			case w.Opening > asked[w.ID]/10:
				t.Errorf("seed %d: wallet %d has %d and is to pay %d: it is not short", seed, n, w.Opening, asked[w.ID])
			}
		}
		if enough != ring/2+savers+twoOfOne || money.Accounts(plan)[hotWallet].Ample {
			t.Errorf("seed %d: %d have enough", seed, enough)
		}
	}
}

func TestNewPlan_ABurstIsWholeHoweverSmallTheLoad(t *testing.T) {
	if n := len(NewPlan(traffic.Load{Rate: 10, Duration: time.Second, Replicas: 2}).Load()); n != walletBurst+savers {
		t.Errorf("%d intents, want %d", n, walletBurst+savers)
	}
}

func TestNewPlan_ReadsAndForbiddenRequestsAreSentAmongTheOperations(t *testing.T) {
	plan := NewPlan(quickLoad)
	place := places(plan)
	reads, denied, duplicates, givenUp := 0, map[string]bool{}, 0, map[traffic.Action]int{}
	byKey := map[string]*traffic.Intent{}
	for _, i := range plan.Intents {
		byKey[i.Key] = i
	}
	for _, i := range plan.Intents {
		first := byKey[i.SharedKey]
		switch {
		case len(i.Refusals) > 0:
			denied[string(i.Action)+" "+i.Refusals[0]] = true
		case i.Reads:
			if reads++; money.Accounts(plan)[place[i.Of.(Read).Wallet]].Client != i.Client {
				t.Errorf("client %d reads %s", i.Client, i.Path)
			}
		case first != nil && first.Client != i.Client:
			duplicates++
		}
		if i.GivesUp {
			givenUp[i.Action]++
		}
		if (i.Reads || len(i.Refusals) > 0) && (len(i.Contends) > 0 || i.GivesUp) {
			t.Errorf("%+v contends, or is abandoned", i)
		}
	}
	if reads != 2400 || len(denied) != 8 || duplicates != 40 || givenUp[Credit] < 10 || givenUp[Debit] < 10 || givenUp[Pay] < 10 || givenUp[Credit] > 40 {
		t.Errorf("%d reads, forbidden: %v, %d keys of another client, abandoned: %v", reads, denied, duplicates, givenUp)
	}
}

// The follow-ups of many answers contain every kind of request.
func TestFollowUp_KeysAreReusedForAnotherAmountAndForAnotherKind(t *testing.T) {
	kinds := map[string]int{}
	for _, i := range NewPlan(quickLoad).Load() {
		for _, request := range followUp(traffic.Record{Intent: *i, Outcome: traffic.OK}) {
			again := request.Intent
			kinds[string(i.Action)+" "+string(again.Action)]++
			if again.Client != i.Client || again.IdempotencyKey() != i.IdempotencyKey() || again.Key == i.Key || !slices.Equal(again.Refusals, []string{traffic.KeyReused}) {
				t.Errorf("%+v follows %+v", again, i)
			}
		}
	}
	for _, kind := range []string{"credit credit", "credit debit", "debit debit", "debit credit", "pay pay", "pay credit"} {
		if kinds[kind] < 2 {
			t.Errorf("%s: %v", kind, kinds)
		}
	}
}
