// SPDX-License-Identifier: MIT

package inventory

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"shop/loadtest/traffic"
)

var quickLoad = traffic.Load{Rate: 200, Duration: 6 * time.Second, Seed: 1, Replicas: 3}

func TestNewPlan_SameSeedSamePlanOtherSeedOtherPlan(t *testing.T) {
	if !reflect.DeepEqual(NewPlan(quickLoad), NewPlan(quickLoad)) {
		t.Error("two plans of one load differ")
	}
	other := quickLoad
	other.Seed = 2
	if reflect.DeepEqual(NewPlan(quickLoad).Schedule, NewPlan(other).Schedule) {
		t.Error("another seed gives the same plan")
	}
}

func TestNewPlan_DemandIsAtLeastTwiceTheStockAndSingleUnitsAloneCoverIt(t *testing.T) {
	for seed := range int64(50) {
		load := quickLoad
		load.Seed = seed
		plan := NewPlan(load)
		wanted, single := map[string]int64{}, map[string]int64{}
		for _, i := range plan.Load() {
			if i.GivesUp {
				continue
			}
			for _, l := range cart(*i) {
				wanted[l.SKU] += l.Quantity
			}
			if len(cart(*i)) == 1 && cart(*i)[0].Quantity == 1 {
				single[cart(*i)[0].SKU]++
			}
		}
		for _, s := range Products(plan) {
			if s.Quantity < 1 || wanted[s.SKU] < 2*s.Quantity || single[s.SKU] < s.Quantity {
				t.Errorf("seed %d, %s: stock %d, wanted %d, in single units %d", seed, s.SKU, s.Quantity, wanted[s.SKU], single[s.SKU])
			}
		}
	}
}

func TestNewPlan_OneIntentInTenIsSentTwiceAtOnceToTwoReplicas(t *testing.T) {
	plan := NewPlan(quickLoad)
	twice := 0
	for i := 1; i < len(plan.Schedule); i++ {
		before, request := plan.Schedule[i-1], plan.Schedule[i]
		if request.At < before.At {
			t.Fatalf("request %d is earlier than the one before", i)
		}
		if request.Intent != before.Intent {
			continue
		}
		twice++
		if request.At != before.At || request.Replica == before.Replica {
			t.Errorf("duplicates %+v and %+v: want one moment and two replicas", before, request)
		}
	}
	if len(plan.Load()) != 1200 || twice != 120 {
		t.Errorf("%d intents, %d duplicates; want 1200 and 120", len(plan.Load()), twice)
	}
}

func TestNewPlan_ReadsAndForbiddenRequestsAreSentAmongThePurchases(t *testing.T) {
	plan := NewPlan(quickLoad)
	reads, lists, denied, shared, givenUp, senders := 0, 0, map[string]bool{}, 0, 0, map[int]bool{}
	for _, i := range plan.Intents {
		senders[i.Client] = true
		switch {
		case len(i.Refusals) > 0:
			denied[string(i.Action)+i.Refusals[0]] = true
		case i.Action == ReadProducts:
			lists++
		case i.Reads:
			reads++
		case i.SharedKey != "":
			shared++
		}
		if i.GivesUp {
			givenUp++
		}
		if (i.Reads || len(i.Refusals) > 0) && (len(i.Contends) > 0 || i.GivesUp) {
			t.Errorf("%+v contends, or is abandoned", i)
		}
	}
	if reads+lists != 2400 || lists != 480 || len(denied) != 5 || shared != 24 || givenUp < 30 || givenUp > 90 || len(senders) != clients {
		t.Errorf("%d reads, %d lists, forbidden: %v, %d keys of another client, %d abandoned, %d clients", reads, lists, denied, shared, givenUp, len(senders))
	}
	byKey := map[string]*traffic.Intent{}
	for _, i := range plan.Intents {
		byKey[i.Key] = i
	}
	for _, i := range plan.Load() {
		if i.SharedKey != "" && (byKey[i.SharedKey].Client == i.Client || byKey[i.SharedKey].SharedKey != "") {
			t.Errorf("%s has the key of the same client, or one that is not sent", i.Key)
		}
	}
}

func TestNewPlan_ACartIsInOneCurrencyAndPricesDiffer(t *testing.T) {
	plan := NewPlan(quickLoad)
	prices, currencies := map[int64]bool{}, map[string]bool{}
	for _, s := range Products(plan) {
		prices[s.Price], currencies[s.Currency] = true, true
	}
	if len(prices) != drops || len(currencies) != 2 {
		t.Errorf("%d prices, %d currencies", len(prices), len(currencies))
	}
	for _, i := range plan.Load() {
		for _, l := range cart(*i) {
			if l.Currency != cart(*i)[0].Currency {
				t.Errorf("%s: %+v", i.Key, cart(*i))
			}
		}
	}
}

// The follow-ups of many answers contain every kind of request.
func TestFollowUp_EachKindFollowsSomePurchase(t *testing.T) {
	kinds := map[string]int{}
	count := func(r traffic.Record) {
		for _, request := range followUp(r) {
			i := request.Intent
			kinds[string(i.Action)+" "+strings.Join(i.Refusals, "")]++
			if i.Key == r.Key || i.Action == Cancel && i.Of.(Return).Order != r.Made {
				t.Errorf("%s follows %s: %+v", i.Key, r.Key, i)
			}
		}
	}
	for _, i := range NewPlan(quickLoad).Load() {
		bought := traffic.Record{Intent: *i, Outcome: traffic.OK, Made: traffic.DrawID(traffic.RandomFor(i.Key))}
		count(bought)
		refused := traffic.Record{Intent: *i, Outcome: traffic.Rejected, Attempts: []traffic.Attempt{{Outcome: traffic.Rejected, Problem: "out-of-stock"}}}
		count(refused)
		for _, cancellation := range twice(traffic.RandomFor(i.Key), bought) {
			count(traffic.Record{Intent: *cancellation.Intent, Outcome: traffic.OK, Made: bought.Made})
		}
	}
	for _, kind := range []string{
		"read-order ", "read-order not-found", "cancel ", "cancel not-found", "cancel already-cancelled",
		"cancel idempotency-key-reused", "buy idempotency-key-reused", "buy ",
	} {
		if kinds[kind] < 10 {
			t.Errorf("%q follows %d times: %v", kind, kinds[kind], kinds)
		}
	}
	if len(kinds) != 8 {
		t.Errorf("kinds: %v", kinds)
	}
}

func TestNewPlan_SomethingIsOnSaleAtAnyTime(t *testing.T) {
	for at := time.Duration(0); at < quickLoad.Duration; at += time.Millisecond {
		pair := onSale(at, quickLoad)
		if pair[0] < 0 || pair[1] >= drops || pair[0] == pair[1] {
			t.Fatalf("at %v on sale: %v", at, pair)
		}
	}
}

func TestNewPlan_ADayOfLoadIsSpreadOverTheDay(t *testing.T) {
	load := traffic.Load{Rate: 2, Duration: 24 * time.Hour, Seed: 1, Replicas: 2}
	schedule := NewPlan(load).Schedule
	for i, request := range schedule {
		if request.At < 0 || i > 0 && request.At < schedule[i-1].At {
			t.Fatalf("request %d comes at %v", i, request.At)
		}
	}
	if last := schedule[len(schedule)-1].At; last > load.Duration || last < load.Duration-time.Second {
		t.Errorf("the last request comes at %v", last)
	}
}

func TestNewPlan_BurstsOfPurchasesWantOneProduct(t *testing.T) {
	for _, rate := range []int{200, 20} {
		load := quickLoad
		load.Rate, load.Duration = rate, time.Minute
		together := map[time.Duration]map[string]map[string]bool{} // keys by product, by moment
		for _, r := range NewPlan(load).Schedule {
			if r.Intent.Action != Buy || len(r.Intent.Contends) == 0 {
				continue
			}
			if together[r.At] == nil {
				together[r.At] = map[string]map[string]bool{}
			}
			for _, sku := range r.Intent.Contends {
				if together[r.At][sku] == nil {
					together[r.At][sku] = map[string]bool{}
				}
				together[r.At][sku][r.Intent.Key] = true
			}
		}
		bursts, second := 0, 0
		for at, skus := range together {
			most, product := 0, ""
			for sku, keys := range skus {
				if len(keys) > most {
					most, product = len(keys), sku
				}
			}
			if most < 10 {
				continue // purchases that are sent alone
			}
			bursts++
			if product == sku(onSale(at, load)[1]) {
				second++
			}
		}
		if least := rate * 60 / 2 / 50; bursts < least || second == 0 || 2*second > bursts {
			t.Errorf("at %d a second: %d bursts for one product, want at least %d; %d for the second one on sale, want fewer than half", rate, bursts, least, second)
		}
	}
}

// The list of all products grows with the load. With the share of list reads of a short load, the lists of
// 20 minutes would have 40 times as many bytes as those of 40 loads of half a minute.
func TestNewPlan_TheListsOfALongLoadAreFewer(t *testing.T) {
	shown := func(duration time.Duration) int {
		n, load := 0, traffic.Load{Rate: 20, Duration: duration, Seed: 1, Replicas: 3}
		for _, i := range NewPlan(load).Intents {
			if i.Action == ReadProducts {
				n += dropsIn(load)
			}
		}
		return n
	}
	if long, short := shown(20*time.Minute), shown(30*time.Second); long > 50*short || long < 30*short {
		t.Errorf("%d products are shown in 20 minutes, %d in half a minute", long, short)
	}
}

func TestOnSale_ALongLoadHasMoreProductsAndNoneIsOnSaleForLong(t *testing.T) {
	long := traffic.Load{Rate: 200, Duration: 30 * time.Minute, Seed: 1, Replicas: 3}
	seen := map[int]int{}
	for at := time.Duration(0); at < long.Duration; at += time.Second {
		pair := onSale(at, long)
		if pair[0] < 0 || pair[1] >= dropsIn(long) || pair[1] != pair[0]+1 {
			t.Fatalf("at %v: %v", at, pair)
		}
		seen[pair[0]]++
	}
	for drop, seconds := range seen {
		if seconds > 4 {
			t.Errorf("drop %d for %d seconds", drop, seconds)
		}
	}
	if len(seen) != dropsIn(long)-1 {
		t.Errorf("%d pairs", len(seen))
	}
	few := long
	few.Rate = 20
	if each := 1800 * few.Rate / (dropsIn(few) - 1); each < dropLeast {
		t.Errorf("at a low rate %d purchases meet a pair, want at least %d", each, dropLeast)
	}
}
