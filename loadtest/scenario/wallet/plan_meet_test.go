// SPDX-License-Identifier: MIT

package wallet

import (
	"strings"
	"testing"
	"time"

	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
)

func TestNewPlan_TheHotWalletIsCreditedAndDebitedSeveralTimesAtOnceOnSeveralReplicas(t *testing.T) {
	plan := NewPlan(quickLoad)
	hot := money.Accounts(plan)[hotWallet].ID
	spread := 0
	for at, requests := range bursts(plan) {
		credits, debits, replicas := map[*traffic.Intent]bool{}, map[*traffic.Intent]bool{}, map[int]bool{}
		for _, s := range requests {
			if move(*s.Intent).wallet() != hot {
				continue
			}
			replicas[s.Replica] = true
			if s.Intent.Action == Credit {
				credits[s.Intent] = true
			} else {
				debits[s.Intent] = true
			}
		}
		if len(credits) != hotCredits || len(debits) != hotDebits {
			t.Errorf("at %v: %d credits, %d debits", at, len(credits), len(debits))
		}
		if len(replicas) > 1 {
			spread++
		}
	}
	if spread < 36 {
		t.Errorf("only %d of 40 bursts have it on several replicas", spread)
	}
}

func TestNewPlan_NeighboursOfTheRingPayEachOtherAtOnceOnTwoReplicas(t *testing.T) {
	plan := NewPlan(quickLoad)
	place := places(plan)
	met := map[[2]int]int{}
	for at, requests := range bursts(plan) {
		paid := map[[2]int]int{} // pair → replica
		for _, s := range requests {
			if s.Intent.Action == Pay {
				paid[[2]int{place[move(*s.Intent).From], place[move(*s.Intent).To]}] = s.Replica
			}
		}
		for pair := range paid {
			_, both := paid[[2]int{pair[1], pair[0]}]
			if gap := (pair[1] - pair[0] + ring) % ring; !both || gap != 1 && gap != ring-1 || pair[0] < 1 || pair[0] > ring {
				t.Errorf("at %v: %v, and back: %v", at, pair, both)
			}
			met[pair]++
		}
		if len(paid) != ring {
			t.Errorf("at %v: %d payments, want %d", at, len(paid), ring)
		}
	}
	if len(met) != 2*ring {
		t.Errorf("%d of %d pairs of neighbours ever met: %v", len(met), 2*ring, met)
	}
	for i, s := range load(plan) { // a burst is shuffled, so pairs are found by their wallets
		for _, other := range load(plan)[i+1:] {
			if other.At != s.At {
				break
			}
			opposite := s.Intent.Action == Pay && other.Intent.Action == Pay && move(*s.Intent).From == move(*other.Intent).To && move(*s.Intent).To == move(*other.Intent).From
			if opposite && s.Replica == other.Replica && !duplicated(plan, s) && !duplicated(plan, other) {
				t.Errorf("%s and %s meet in one replica, whose queue keeps them apart", s.Intent.Key, other.Intent.Key)
			}
		}
	}
}

// duplicated reports whether an intent is sent twice.
func duplicated(plan traffic.Plan, request traffic.ScheduledRequest) bool {
	n := 0
	for _, s := range load(plan) {
		if s.Intent == request.Intent {
			n++
		}
	}
	return n > 1
}

func TestNewPlan_SomeOfTheRingAreCreditedWhileTheyPay(t *testing.T) {
	plan := NewPlan(quickLoad)
	place := places(plan)
	credited := map[int]bool{}
	for at, requests := range bursts(plan) {
		now := map[*traffic.Intent]bool{}
		for _, s := range requests {
			if w := place[move(*s.Intent).wallet()]; s.Intent.Action == Credit && w != hotWallet && w <= ring {
				credited[w], now[s.Intent] = true, true
			}
		}
		if len(now) != ringCredits {
			t.Errorf("at %v: %d credits of the ring", at, len(now))
		}
	}
	if len(credited) != ring || credited[1+ring] {
		t.Errorf("credited, ever: %v", credited)
	}
}

func TestNewPlan_QuietWalletsAreCreditedAloneAndAtShortIntervals(t *testing.T) {
	plan := NewPlan(quickLoad)
	place := places(plan)
	last, count := time.Duration(0), map[int]int{}
	for i, s := range load(plan) {
		w := place[move(*s.Intent).wallet()]
		if w <= ring || w > ring+savers || i > 0 && load(plan)[i-1].Intent == s.Intent {
			continue
		}
		if gap := s.At - last; gap < time.Millisecond || gap > 35*time.Millisecond {
			t.Errorf("%s comes %v after the one before", s.Intent.Key, gap)
		}
		last = s.At
		count[w]++
	}
	for w := 1 + ring; w <= ring+savers; w++ {
		if count[w] != len(bursts(plan)) {
			t.Errorf("saver %d came %d times", w, count[w])
		}
	}
}

func TestNewPlan_OneKeyIsUsedForTwoWalletsOfOneClientAtOnceOnTwoReplicas(t *testing.T) {
	plan := NewPlan(quickLoad)
	place := places(plan)
	for at, requests := range bursts(plan) {
		shared := map[*traffic.Intent]map[int]bool{}
		keys := map[string]bool{}
		wallets := map[int]bool{}
		for _, s := range requests {
			if !strings.HasPrefix(s.Intent.Key, "shared-") {
				continue
			}
			if shared[s.Intent] == nil {
				shared[s.Intent] = map[int]bool{}
			}
			shared[s.Intent][s.Replica] = true
			keys[s.Intent.SharedKey] = true
			wallets[place[move(*s.Intent).wallet()]] = true
		}
		together := map[int]bool{}
		for _, replicas := range shared {
			for r := range replicas {
				together[r] = true
			}
		}
		if len(shared) != 2 || len(keys) != 1 || !wallets[len(place)-1] || !wallets[len(place)-2] || len(together) < 2 {
			t.Errorf("at %v: %d intents under %d keys, for wallets %v, on %d replicas", at, len(shared), len(keys), wallets, len(together))
		}
	}
	if a, b := money.Accounts(plan)[len(place)-2], money.Accounts(plan)[len(place)-1]; a.Client != b.Client {
		t.Errorf("the wallets are of clients %d and %d: a key belongs to a client", a.Client, b.Client)
	}
}
