package loadtest

import (
	"reflect"
	"testing"
	"time"
)

var quickLoad = Load{Rate: 200, Duration: 6 * time.Second, Seed: 1, Replicas: 3}

func TestNewInventoryPlan_SameSeedSamePlanOtherSeedOtherPlan(t *testing.T) {
	if !reflect.DeepEqual(NewInventoryPlan(quickLoad), NewInventoryPlan(quickLoad)) {
		t.Error("two plans of one load differ")
	}
	other := quickLoad
	other.Seed = 2
	if reflect.DeepEqual(NewInventoryPlan(quickLoad).Shots, NewInventoryPlan(other).Shots) {
		t.Error("another seed gives the same plan")
	}
}

func TestNewInventoryPlan_DemandIsAtLeastTwiceTheStockAndSingleUnitsAloneCoverIt(t *testing.T) {
	for seed := range int64(50) {
		load := quickLoad
		load.Seed = seed
		plan := NewInventoryPlan(load)
		wanted, single := map[string]int64{}, map[string]int64{}
		for _, i := range plan.Intents {
			for _, l := range i.Lines {
				wanted[l.SKU] += l.Quantity
			}
			if len(i.Lines) == 1 && i.Lines[0].Quantity == 1 {
				single[i.Lines[0].SKU]++
			}
		}
		for _, s := range plan.Stock {
			if s.Quantity < 1 || wanted[s.SKU] < 2*s.Quantity || single[s.SKU] < s.Quantity {
				t.Errorf("seed %d, %s: stock %d, wanted %d, in single units %d", seed, s.SKU, s.Quantity, wanted[s.SKU], single[s.SKU])
			}
		}
	}
}

func TestNewInventoryPlan_OneIntentInTenIsSentTwiceAtOnceToTwoReplicas(t *testing.T) {
	plan := NewInventoryPlan(quickLoad)
	twins := 0
	for i := 1; i < len(plan.Shots); i++ {
		before, shot := plan.Shots[i-1], plan.Shots[i]
		if shot.At < before.At {
			t.Fatalf("shot %d is earlier than the one before", i)
		}
		if shot.Intent != before.Intent {
			continue
		}
		twins++
		if shot.At != before.At || shot.Replica == before.Replica {
			t.Errorf("twins %+v and %+v: want one moment and two replicas", before, shot)
		}
	}
	if len(plan.Intents) != 1200 || twins != 120 {
		t.Errorf("%d intents, %d twins; want 1200 and 120", len(plan.Intents), twins)
	}
}

func TestNewInventoryPlan_SomethingIsOnSaleAtAnyTime(t *testing.T) {
	for at := time.Duration(0); at < quickLoad.Duration; at += time.Millisecond {
		pair := onSale(at, quickLoad.Duration)
		if pair[0] < 0 || pair[1] >= drops || pair[0] == pair[1] {
			t.Fatalf("at %v on sale: %v", at, pair)
		}
	}
}

func TestPlans_ADayOfLoadIsSpreadOverTheDay(t *testing.T) {
	load := Load{Rate: 2, Duration: 24 * time.Hour, Seed: 1, Replicas: 2}
	foreign, err := (&Template{Method: "POST", Path: "/"}).shots(load)
	if err != nil {
		t.Fatal(err)
	}
	for name, shots := range map[string][]Shot{"plan": NewInventoryPlan(load).Shots, "template": foreign} {
		for i, shot := range shots {
			if shot.At < 0 || i > 0 && shot.At < shots[i-1].At {
				t.Fatalf("%s: shot %d comes at %v", name, i, shot.At)
			}
		}
		if last := shots[len(shots)-1].At; last > load.Duration || last < load.Duration-time.Second {
			t.Errorf("%s: the last shot comes at %v", name, last)
		}
	}
}
