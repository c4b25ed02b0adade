// SPDX-License-Identifier: MIT

package wallet

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
)

// words returns the replies to correctWallets' clients, in order, after an edit.
func words(edit func(map[string]traffic.Record)) (records []traffic.Record) {
	all := correctReplies()
	if edit != nil {
		edit(all)
	}
	for _, r := range all {
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b traffic.Record) int { return strings.Compare(a.Key, b.Key) })
	return records
}

func TestDeniedRight_OwnersAreRefusedOnlyForFundsOrForASharedKey(t *testing.T) {
	if found := deniedRight(words(nil)); len(found) != 0 {
		t.Errorf("found %v", found)
	}
	for _, problem := range []string{"forbidden", "not-found", "invalid-request", "unauthorized", traffic.KeyReused} {
		found := deniedRight(words(forgery("k1", refusedWith(problem))))
		if len(found) != 1 || found[0] != "k1: "+problem {
			t.Errorf("%s: found %v", problem, found)
		}
	}
	if found := deniedRight(words(forgery("s2", refusedWith("forbidden")))); len(found) != 1 {
		t.Errorf("a shared key that is refused for another reason: %v", found)
	}
}

func TestSharedTwice_ExactlyOneIntentOfASharedKeyIsExecuted(t *testing.T) {
	for name, c := range map[string]struct {
		edit  func(map[string]traffic.Record)
		wrong int
	}{
		"one is":                      {nil, 0},
		"of another client":           {forgery("k9", func(r *traffic.Record) { r.Outcome = traffic.OK }), 0},
		"for another amount":          {forgery("reuse-credit-k1", func(r *traffic.Record) { r.Outcome = traffic.OK }), 1},
		"both are":                    {forgery("s2", func(r *traffic.Record) { r.Outcome = traffic.OK }), 1},
		"none is":                     {forgery("s1", refusedWith(traffic.KeyReused)), 1},
		"one may be":                  {forgery("s1", func(r *traffic.Record) { r.Outcome = traffic.Unknown }), 0},
		"a refusal uses up the key":   {forgery("s1", refusedWith("insufficient-funds")), 0},
		"another used the key before": {shareKey("k2", "k3", traffic.KeyReused), 0},
		"one more after another":      {shareKey("k2", "k3", ""), 1},
		"one more after a refusal":    {shareKey("k4", "k3", ""), 0}, // the refusal uses up the key: I-ACK finds it
		"refused like the one before": {shareKey("k4", "k3", traffic.KeyReused), 0},
	} {
		if found := sharedTwice(words(c.edit)); len(found) != c.wrong {
			t.Errorf("%s: found %v", name, found)
		}
	}
}

// shareKey gives an intent the key of another one.
func shareKey(first, second, problem string) func(map[string]traffic.Record) {
	return forgery(second, func(r *traffic.Record) {
		if r.SharedKey = first; problem != "" {
			refusedWith(problem)(r)
		}
	})
}

func TestWronglyRefused_AWalletWithEnoughMustNotBeRefused(t *testing.T) {
	wallets := []money.Account{{ID: uuid.MustParse(wallet1)}, {ID: uuid.MustParse(wallet3), Ample: true}}
	if found := money.WronglyRefused(words(nil), wallets, payer); len(found) != 0 {
		t.Errorf("found %v", found)
	}
	found := money.WronglyRefused(words(forgery("s2", refusedWith("insufficient-funds"))), wallets, payer)
	if len(found) != 1 || !strings.HasPrefix(found[0], "s2") {
		t.Errorf("%v, want the refusal of the ample one alone", found)
	}
}

func TestMembers_DifferencesAndLostAcknowledgedOperationsBreakM4(t *testing.T) {
	m := Members{Apart: []string{"wallets"}, RolledBack: []string{operation1, operation4, uuid.NewString()}}
	found := m.broken(words(nil))
	if len(found) != 2 || found[0] != "wallets" || !strings.HasPrefix(found[1], "k1: operation "+operation1) {
		t.Errorf("%v; want the collection, and the acknowledged operation", found)
	}
	if found := (Members{}).broken(words(nil)); len(found) != 0 {
		t.Errorf("members that agree: %v", found)
	}
}
