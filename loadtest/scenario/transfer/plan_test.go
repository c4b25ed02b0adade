// SPDX-License-Identifier: MIT

package transfer

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/loadtest"
	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
)

var quickLoad = traffic.Load{Rate: 200, Duration: 6 * time.Second, Seed: 1, Replicas: 3}

// owners returns the client of each account.
func owners(plan traffic.Plan) map[uuid.UUID]int {
	owner := map[uuid.UUID]int{}
	for _, a := range money.Accounts(plan) {
		owner[a.ID] = a.Client
	}
	return owner
}

func TestNewPlan_SameSeedSamePlanOtherSeedOtherPlan(t *testing.T) {
	if !reflect.DeepEqual(NewPlan(quickLoad), NewPlan(quickLoad)) {
		t.Error("two plans of one load differ")
	}
	other := quickLoad
	other.Seed = 2
	if reflect.DeepEqual(money.Accounts(NewPlan(quickLoad)), money.Accounts(NewPlan(other))) {
		t.Error("another seed gives the same accounts")
	}
}

func TestNewPlan_EachTransferIsSentByThePayersOwnerAndTouchesAHotAccount(t *testing.T) {
	plan := NewPlan(quickLoad)
	owner := owners(plan)
	if len(owner) != clients || plan.Clients != clients || len(plan.Load()) != 1200 {
		t.Fatalf("%d accounts, %d clients, %d intents", len(owner), plan.Clients, len(plan.Load()))
	}
	for _, i := range plan.Load() {
		if from, to := owner[move(*i).From], owner[move(*i).To]; from != i.Client || from == to || from >= hot && to >= hot || from%groups != to%groups {
			t.Errorf("%s: client %d sends from %d to %d", i.Key, i.Client, from, to)
		}
	}
}

func TestNewPlan_AllClientsSendAtOnceAndHotAccountsPayEachOtherAtOnce(t *testing.T) {
	plan := NewPlan(quickLoad)
	owner := owners(plan)
	bursts := map[time.Duration]map[[2]int]bool{}
	for _, request := range plan.Schedule {
		if request.Intent.Reads || len(request.Intent.Refusals) > 0 {
			continue
		}
		if bursts[request.At] == nil {
			bursts[request.At] = map[[2]int]bool{}
		}
		bursts[request.At][[2]int{owner[move(*request.Intent).From], owner[move(*request.Intent).To]}] = true
	}
	crossing, whole := 0, 0
	for _, burst := range bursts {
		if len(burst) == clients {
			whole++
		}
		for pair := range burst {
			if pair[0] < pair[1] && burst[[2]int{pair[1], pair[0]}] && pair[1] < hot {
				crossing++
			}
		}
	}
	if len(bursts) != 19 || whole != 18 || crossing < len(bursts) {
		t.Errorf("%d bursts, %d of them whole, %d pairs of hot accounts in opposite directions", len(bursts), whole, crossing)
	}
}

func TestNewPlan_AtALowRateEachGroupHasItsOwnMoment(t *testing.T) {
	load := quickLoad
	load.Rate, load.Duration = 20, 32*time.Second
	plan := NewPlan(load)
	owner := owners(plan)
	moments := map[time.Duration]map[int]bool{}
	for i, request := range plan.Schedule {
		if i > 0 && request.At < plan.Schedule[i-1].At {
			t.Fatalf("request %d is earlier than the one before", i)
		}
		if m := move(*request.Intent); m != nil && len(request.Intent.Refusals) == 0 {
			if moments[request.At] == nil {
				moments[request.At] = map[int]bool{}
			}
			moments[request.At][owner[m.From]] = true
		}
	}
	for at, senders := range moments {
		for c := range senders {
			if len(senders) != clients/groups || c%groups != int((at+time.Millisecond)/(800*time.Millisecond))%groups {
				t.Fatalf("at %v: client %d and %d others", at, c, len(senders)-1)
			}
		}
	}
	if len(moments) != 10*groups {
		t.Errorf("%d moments, want %d", len(moments), 10*groups)
	}
}

func TestNewPlan_OneInTenIsSentTwiceAtOnceToTwoReplicasOneInSixIsAHold(t *testing.T) {
	plan := NewPlan(quickLoad)
	twice, holds, left, late := 0, 0, 0, 0
	for i, request := range plan.Schedule {
		if i > 0 && request.At < plan.Schedule[i-1].At {
			t.Fatalf("request %d is earlier than the one before", i)
		}
		if i > 0 && request.Intent == plan.Schedule[i-1].Intent {
			twice++
			if request.At != plan.Schedule[i-1].At || request.Replica == plan.Schedule[i-1].Replica {
				t.Errorf("duplicates %+v and %+v: want one moment and two replicas", plan.Schedule[i-1], request)
			}
		}
	}
	for _, i := range plan.Load() {
		h := move(*i).Hold
		if h == nil {
			continue
		}
		holds++
		if h.Post == h.Void || h.For < 900*time.Millisecond || h.For > 2200*time.Millisecond || i.Action != Reserve {
			t.Errorf("%s: %+v", i.Key, h)
		}
		if h.Left {
			left++
		}
		if h.Settle > -30*time.Millisecond {
			late++
		}
	}
	if twice != 120 || holds < 160 || holds > 240 || left == 0 || late < holds/4 || late > 2*holds/3 {
		t.Errorf("%d duplicates, %d holds, %d left to the sweeper, %d settled at their end or after", twice, holds, left, late)
	}
}

func TestNewPlan_AmpleAccountsCoverTheirPaymentsAndManyOthersDoNot(t *testing.T) {
	for seed := range int64(20) {
		load := quickLoad
		load.Seed = seed
		plan := NewPlan(load)
		asked := make([]int64, clients)
		for _, i := range plan.Load() {
			asked[i.Client] += move(*i).Amount
		}
		enough, short := 0, 0
		for _, a := range money.Accounts(plan) {
			switch {
			case a.Ample && a.Opening < asked[a.Client]:
				t.Errorf("seed %d: account %d has %d and is to pay %d", seed, a.Client, a.Opening, asked[a.Client])
			case a.Ample:
				enough++
			case a.Opening < asked[a.Client]/2:
				short++
			}
		}
		if enough != ample || short < hot+poor {
			t.Errorf("seed %d: %d have enough, %d are short", seed, enough, short)
		}
	}
}

func TestNewPlan_OnlyAHoldHasADuration(t *testing.T) {
	for _, i := range NewPlan(quickLoad).Load() {
		var body struct {
			From, To  uuid.UUID
			Amount    int64
			Currency  string
			Pending   bool
			ExpiresIn string `json:"expires_in"`
		}
		if err := json.Unmarshal(i.Body, &body); err != nil {
			t.Fatal(err)
		}
		d, _ := time.ParseDuration(body.ExpiresIn)
		hold := move(*i).Hold != nil
		if body.From != move(*i).From || body.To != move(*i).To || body.Amount != move(*i).Amount || body.Currency != currency || body.Pending != hold || hold && d != move(*i).Hold.For || !hold && body.ExpiresIn != "" {
			t.Errorf("%s is sent for %+v", i.Body, move(*i))
		}
	}
}

func TestFlow_AFaultThatTakesLongGetsALongerLoad(t *testing.T) {
	for fault, want := range map[loadtest.Fault]traffic.Load{
		loadtest.NoFault: quickLoad,
		loadtest.Pause:   {Rate: 100, Duration: 20 * time.Second, Seed: 1, Replicas: 3},
		loadtest.Crash:   {Rate: 25, Duration: 48 * time.Second, Seed: 1, Replicas: 3}, // as many requests
	} {
		if got := New().Load(quickLoad, fault, 2*time.Second); got != want {
			t.Errorf("%s: %+v, want %+v", fault, got, want)
		}
	}
	if !slices.Equal([]int{len(NewPlan(traffic.Load{Rate: 10, Duration: time.Second, Replicas: 2}).Load())}, []int{10}) {
		t.Error("a load of less than one burst")
	}
}

func TestNewPlan_AGroupHasItsShareOfEachKindOfAccount(t *testing.T) {
	kinds := map[[2]int]int{}
	for _, a := range money.Accounts(NewPlan(quickLoad)) {
		kind := 0
		for _, end := range []int{hot, hot + ample, hot + ample + poor} {
			if a.Client >= end {
				kind++
			}
		}
		kinds[[2]int{a.Client % groups, kind}]++
	}
	for group := range groups {
		for kind, want := range []int{hot, ample, poor, clients - hot - ample - poor} {
			if got := kinds[[2]int{group, kind}]; got != want/groups {
				t.Errorf("group %d has %d of kind %d, want %d", group, got, kind, want/groups)
			}
		}
	}
}

func TestNewPlan_ReadsAndForbiddenRequestsAreSentAmongTheTransfers(t *testing.T) {
	plan := NewPlan(quickLoad)
	owner := owners(plan)
	reads, denied, shared, givenUp, twice := 0, map[string]bool{}, 0, 0, map[traffic.Action]int{}
	for _, i := range plan.Intents {
		switch {
		case len(i.Refusals) > 0:
			denied[string(i.Action)+i.Refusals[0]] = true
		case i.Reads:
			if reads++; owner[i.Of.(Read).Account] != i.Client {
				t.Errorf("client %d reads the account of %d", i.Client, owner[i.Of.(Read).Account])
			}
		case i.SharedKey != "":
			shared++
		}
		if i.GivesUp {
			givenUp++
		}
		if m := move(*i); m != nil && m.Hold != nil && m.Hold.Twice != "" {
			twice[m.Hold.Twice]++
		}
		if (i.Reads || len(i.Refusals) > 0) && (len(i.Contends) > 0 || i.GivesUp) {
			t.Errorf("%+v contends, or is abandoned", i)
		}
	}
	if reads != 1200 || len(denied) != 7 || shared != 24 || givenUp < 30 || givenUp > 90 || twice[PostHold] < 10 || twice[VoidHold] < 10 {
		t.Errorf("%d reads, forbidden: %v, %d keys of another client, %d abandoned, settled twice: %v", reads, denied, shared, givenUp, twice)
	}
}
