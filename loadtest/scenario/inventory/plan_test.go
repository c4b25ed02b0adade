package inventory

import (
	"reflect"
	"testing"
	"time"

	"shop/loadtest"
)

var quickLoad = loadtest.Load{Rate: 200, Duration: 6 * time.Second, Seed: 1, Replicas: 3}

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
		for _, i := range plan.Intents {
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
	if len(plan.Intents) != 1200 || twice != 120 {
		t.Errorf("%d intents, %d duplicates; want 1200 and 120", len(plan.Intents), twice)
	}
}

func TestNewPlan_SomethingIsOnSaleAtAnyTime(t *testing.T) {
	for at := time.Duration(0); at < quickLoad.Duration; at += time.Millisecond {
		pair := onSale(at, quickLoad.Duration)
		if pair[0] < 0 || pair[1] >= drops || pair[0] == pair[1] {
			t.Fatalf("at %v on sale: %v", at, pair)
		}
	}
}

func TestNewPlan_ADayOfLoadIsSpreadOverTheDay(t *testing.T) {
	load := loadtest.Load{Rate: 2, Duration: 24 * time.Hour, Seed: 1, Replicas: 2}
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
