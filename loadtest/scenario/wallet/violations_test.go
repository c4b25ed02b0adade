// SPDX-License-Identifier: MIT

package wallet

import "shop/loadtest/traffic"

// violation is planted in correctWallets by commands, or by an edit of the clients' replies.
type violation struct {
	check   string // that must find it
	name    string
	do      string
	replies func(map[string]traffic.Record)
	ids     []string
}

func byID(text string) string { return `{"_id": ` + id(text) + `}` }

func ofOperation(text string) string { return `{"operation": ` + id(text) + `}` }

// A service that creates money and keeps consistent books.
var (
	raisedAlike   = update("wallets", byID(wallet3), `{"$inc": {"opening": 100, "balance": 100}}`)
	walletBeside  = insert("wallets", walletDocument(operation1, client, 70, 70))
	removedWallet = remove("wallets", byID(wallet3))
)

var violations = []violation{
	{check: "M1 opened", name: "balance and opening both raised", do: raisedAlike, ids: []string{wallet3}},
	{check: "M1 opened", name: "a wallet that is not in the plan", do: walletBeside, ids: []string{operation1}},
	{check: "M1 opened", name: "a missing wallet", do: removedWallet, ids: []string{wallet3}},
	{check: "M1 opened", name: "a wallet with another owner", do: update("wallets", byID(wallet2), `{"$set": {"owner": `+id(client)+`}}`), ids: []string{wallet2}},
	{check: "M1 opened", name: "dollars instead of euros", do: update("wallets", byID(wallet3), `{"$set": {"currency": "USD"}}`), ids: []string{wallet3}},
	{check: "M1", name: "money from nowhere", do: update("wallets", byID(wallet3), `{"$inc": {"balance": 5}}`), ids: []string{"off by 5"}},
	{check: "M1", name: "lost by a wallet without entries", do: update("wallets", byID(wallet3), `{"$set": {"balance": 0}}`), ids: []string{"off by -500"}},
	{check: "M1", name: "a lost update", do: update("wallets", byID(wallet1), `{"$inc": {"balance": -110}}`), ids: []string{"off by -110"}},
	{check: "M1", name: "a missing wallet", do: remove("wallets", byID(wallet2)), ids: []string{"off by -200"}},
	{check: "M2 wallets", name: "two errors that cancel out", do: update("wallets", byID(wallet1), `{"$inc": {"balance": -7}}`) + update("wallets", byID(wallet2), `{"$inc": {"balance": 7}}`), ids: []string{wallet1, wallet2}},
	{check: "M2 wallets", name: "money in a wallet without an entry", do: update("wallets", byID(wallet3), `{"$inc": {"balance": 1}}`), ids: []string{wallet3}},
	{check: "M2 wallets", name: "a negative amount", do: update("wallets", byID(wallet3), `{"$set": {"balance": -5, "opening": -5}}`), ids: []string{wallet3}},
	{check: "M2 wallets", name: "an entry of a missing wallet", do: remove("wallets", byID(wallet2)), ids: []string{wallet2}},
	{check: "M2 operations", name: "executed without an entry", do: remove("wallet_entries", ofOperation(operation2)), ids: []string{operation2}},
	{check: "M2 operations", name: "a payment with one entry", do: remove("wallet_entries", `{"delta": 200}`), ids: []string{operation3}},
	{check: "M2 operations", name: "a payment the wrong way round", do: update("wallet_entries", ofOperation(operation3), `[{"$set": {"delta": {"$subtract": [0, "$delta"]}}}]`), ids: []string{operation3}},
	{check: "M2 operations", name: "a credit without its bonus", do: update("wallet_entries", ofOperation(operation1), `{"$set": {"delta": 100}}`), ids: []string{operation1}},
	{check: "M2 operations", name: "a credit that debits", do: update("wallet_entries", ofOperation(operation1), `{"$set": {"delta": -110}}`), ids: []string{operation1}},
	{check: "M2 operations", name: "a debit of another amount", do: update("wallet_entries", ofOperation(operation2), `{"$set": {"delta": -31}}`), ids: []string{operation2}},
	{check: "M2 operations", name: "a debit at another wallet", do: update("wallet_entries", ofOperation(operation2), `{"$set": {"wallet": `+id(wallet3)+`}}`), ids: []string{operation2}},
	{check: "M2 operations", name: "a debit with a bonus", do: update("wallet_operations", byID(operation2), `{"$set": {"bonus": 3}}`), ids: []string{operation2}},
	{check: "M2 operations", name: "one entry twice", do: insert("wallet_entries", entryDocument(operation2, wallet1, -30)), ids: []string{operation2}},
	{check: "M2 operations", name: "refused, but debited", do: insert("wallet_entries", entryDocument(operation4, wallet1, -9999)), ids: []string{operation4}},
	{check: "M2 operations", name: "an unknown kind", do: update("wallet_operations", byID(operation2), `{"$set": {"kind": "gift"}}`), ids: []string{operation2}},
	{check: "M2 entries", name: "entries of no operation", do: remove("wallet_operations", byID(operation3)), ids: []string{operation3}},
	{check: "M3 keys", name: "one key, two operations", do: update("wallet_operations", byID(operation2), `{"$set": {"key": "k1"}}`), ids: []string{client + " k1"}},
	{check: "M3 entries", name: "one operation, executed twice", do: insert("wallet_entries", entryDocument(operation1, wallet1, 110)), ids: []string{operation1 + " " + wallet1}},
	{check: "I-ONCE answers", name: "executed, but the stored answer is a refusal", do: update("wallet_operations", byID(operation1), `{"$set": {"status": 409}}`), ids: []string{operation1}},
	{check: "I-ONCE answers", name: "refused, but the stored answer is a success", do: update("wallet_operations", byID(operation4), `{"$set": {"status": 201}}`), ids: []string{operation4}},

	{check: "I-ACK done", name: "acknowledged, but lost", do: remove("wallet_operations", byID(operation1)), ids: []string{"k1"}},
	{check: "I-ACK done", name: "acknowledged, but refused", do: update("wallet_operations", byID(operation2), `{"$set": {"refused": "too little"}}`), ids: []string{"k2"}},
	{check: "I-ACK done", name: "another amount than requested", do: update("wallet_operations", byID(operation1), `{"$set": {"amount": 101}}`), ids: []string{"k1"}},
	{check: "I-ACK done", name: "another bonus than answered", do: update("wallet_operations", byID(operation1), `{"$set": {"bonus": 11}}`), ids: []string{"k1"}},
	{check: "I-ACK done", name: "paid to another wallet", do: update("wallet_operations", byID(operation3), `{"$set": {"to": `+id(wallet3)+`}}`), ids: []string{"k3"}},
	{check: "I-ACK done", name: "of another kind", do: update("wallet_operations", byID(operation2), `{"$set": {"kind": "credit"}}`), ids: []string{"k2"}},
	{check: "I-ACK done", name: "executed for another client", do: update("wallet_operations", byID(operation1), `{"$set": {"client": `+id(client2)+`}}`), ids: []string{"k1"}},
	{check: "I-ACK done", name: "under another key", do: update("wallet_operations", byID(operation1), `{"$set": {"key": "k9"}}`), ids: []string{"k1"}},
	{check: "I-ACK done", name: "answered with another amount", replies: forgery("k2", func(r *traffic.Record) {
		r.Body = []byte(`{"id":"` + operation2 + `","wallet":"` + wallet1 + `","kind":"debit","amount":29,"bonus":0}`)
	}), ids: []string{"k2"}},
	{check: "I-ACK done", name: "a credit answered as a debit", replies: forgery("k2", func(r *traffic.Record) { r.Action = Credit }), ids: []string{"k2"}},
	{check: "I-ACK done", name: "answered without an operation", replies: forgery("k1", func(r *traffic.Record) { r.Body = []byte(`<html>`) }), ids: []string{"k1"}},
	{check: "I-ACK done", name: "answered with the key's operation on another wallet", replies: func(records map[string]traffic.Record) {
		forgery("s2", func(r *traffic.Record) {
			r.Outcome, r.Made, r.Body = traffic.OK, records["s1"].Made, records["s1"].Body
		})(records)
	}, ids: []string{"s2"}},
	{check: "I-ACK refused", name: "refused, but the refusal is not stored", do: remove("wallet_operations", byID(operation4)), ids: []string{"k4"}},
	{check: "I-ACK refused", name: "refused, but executed", replies: forgery("k1", refusedWith("insufficient-funds")), ids: []string{"k1"}},
	{check: "I-REJ", name: "refused, but executed", replies: forgery("k1", refusedWith("insufficient-funds")), ids: []string{"k1"}},
	{check: "I-REJ", name: "refused because of its key, but executed", do: insert("wallet_operations", `{"client": `+id(client)+`, "key": "shared", "kind": "debit", "amount": {"$numberLong": "5"}, "wallet": `+id(wallet3)+`}`), ids: []string{"s2"}},
	{check: "I-REJ", name: "never sent, but executed", replies: forgery("k1", func(r *traffic.Record) {
		r.Outcome, r.Attempts = traffic.Open, []traffic.Attempt{{Outcome: traffic.Open}}
	}), ids: []string{"k1"}},
	{check: "I-REJ unasked", name: "without a request", replies: func(records map[string]traffic.Record) { delete(records, "k1") }, ids: []string{operation1}},
	{check: "I-REJ unasked", name: "requested for another wallet", do: update("wallet_operations", byID(operation2), `{"$set": {"wallet": `+id(wallet3)+`}}`), ids: []string{operation2}},
	{check: "I-REJ unasked", name: "a refusal without a request", replies: func(records map[string]traffic.Record) { delete(records, "k4") }, ids: []string{operation4}},
	{check: "M1 planned", name: "balance and opening both raised", do: raisedAlike, ids: []string{"off by 100"}},
	{check: "M1 planned", name: "a wallet that is not in the plan", do: walletBeside, ids: []string{"off by 70"}},
	{check: "M2 planned", name: "balance and opening both raised", do: raisedAlike, ids: []string{wallet3}},
	{check: "M2 planned", name: "a wallet that is not in the plan", do: walletBeside, ids: []string{operation1}},
	{check: "M2 planned", name: "a missing wallet", do: removedWallet, ids: []string{wallet3}},
	{check: "I-REJ", name: "abandoned after busy, but executed", replies: forgery("k2", func(r *traffic.Record) { r.Outcome = traffic.Open }), ids: []string{"k2"}},
	{check: "I-REJ", name: "executed under the key of another amount", do: insert("wallet_operations", `{"client": `+id(client)+`, "key": "k1", "kind": "credit", "amount": {"$numberLong": "101"}, "wallet": `+id(wallet1)+`}`), ids: []string{"reuse-credit-k1"}},
	{check: "I-REJ unasked", name: "another amount than requested", do: update("wallet_operations", byID(operation2), `{"$set": {"amount": {"$numberLong": "31"}}}`), ids: []string{operation2}},
	{check: "I-REJ unasked", name: "paid to another wallet", do: update("wallet_operations", byID(operation3), `{"$set": {"to": `+id(wallet3)+`}}`), ids: []string{operation3}},
}
