// SPDX-License-Identifier: MIT

package transfer

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"shop/loadtest/traffic"
)

// violation is planted in correctAccounts by SQL, or by an edit of the clients' replies.
type violation struct {
	check   string // that must find it
	name    string
	sql     string
	replies func(map[string]traffic.Record)
	ids     []string
}

// forgery edits the record of one key.
func forgery(key string, edit func(*traffic.Record)) func(map[string]traffic.Record) {
	return func(records map[string]traffic.Record) {
		r := records[key]
		edit(&r)
		records[key] = r
	}
}

// altered forges an answer by replacing some of its text.
func altered(key, is, becomes string) func(map[string]traffic.Record) {
	return forgery(key, func(r *traffic.Record) { r.Body = []byte(strings.Replace(string(r.Body), is, becomes, 1)) })
}

// sentAt forges the time of an attempt.
func sentAt(key string, at time.Duration) func(map[string]traffic.Record) {
	return forgery(key, func(r *traffic.Record) {
		r.Attempts = slices.Clone(r.Attempts)
		r.Attempts[0].Start, r.Attempts[0].End = at, at+time.Millisecond
	})
}

// heldAt forges the read of an account at a time: the hold that has expired is still held, and its money available.
func heldAt(at time.Duration) func(map[string]traffic.Record) {
	return func(records map[string]traffic.Record) {
		altered("account", `"held":70,"available":680`, `"held":130,"available":680`)(records)
		sentAt("account", at)(records)
	}
}

func refusedWith(problem string) func(*traffic.Record) {
	return func(r *traffic.Record) {
		r.Outcome, r.Body = traffic.Rejected, nil
		r.Attempts = []traffic.Attempt{{Outcome: traffic.Rejected, Problem: problem, Sends: 1}}
	}
}

const noEntries = `ALTER TABLE ledger_entries DISABLE TRIGGER append_only; `

// A service that creates money and keeps consistent books.
const (
	bothRaised    = `UPDATE accounts SET opening = opening + 100, balance = balance + 100 WHERE id = '` + account3 + `'`
	accountBeside = `INSERT INTO accounts (id, owner_id, currency, opening, balance) VALUES ('00000000-0000-0000-0000-0000000000a9', '` + client + `', 'EUR', 70, 70)`
)

var violations = []violation{
	{check: "T1 opened", name: "balance and opening both raised", sql: bothRaised, ids: []string{account3}},
	{check: "T1 opened", name: "an account that is not in the plan", sql: accountBeside, ids: []string{"00000000-0000-0000-0000-0000000000a9"}},
	{check: "T1 opened", name: "a missing account", sql: `DELETE FROM accounts WHERE id = '` + account3 + `'`, ids: []string{account3}},
	{check: "T1 opened", name: "an account with another owner", sql: `UPDATE accounts SET owner_id = '` + client + `' WHERE id = '` + account3 + `'`, ids: []string{account3}},
	{check: "T1 opened", name: "dollars instead of euros", sql: `UPDATE accounts SET currency = 'USD' WHERE id = '` + account3 + `'`, ids: []string{account3}},
	{check: "T1", name: "money from nowhere", sql: `UPDATE accounts SET balance = balance + 5 WHERE id = '` + account3 + `'`, ids: []string{"EUR off by 5"}},
	{check: "T1", name: "money lost by an account without entries", sql: `UPDATE accounts SET balance = 0 WHERE id = '` + account3 + `'`, ids: []string{"EUR off by -500"}},
	{check: "T2", name: "posted without entries", sql: noEntries + `DELETE FROM ledger_entries WHERE transfer_id = '` + transfer1 + `'`, ids: []string{transfer1}},
	{check: "T2", name: "one entry is missing", sql: noEntries + `DELETE FROM ledger_entries WHERE transfer_id = '` + transfer1 + `' AND delta > 0`, ids: []string{transfer1}},
	{check: "T2", name: "entries of another amount", sql: noEntries + `UPDATE ledger_entries SET delta = 2 * delta WHERE transfer_id = '` + transfer1 + `'`, ids: []string{transfer1}},
	{check: "T2", name: "entries the wrong way round", sql: noEntries + `UPDATE ledger_entries SET delta = -delta WHERE transfer_id = '` + transfer1 + `'`, ids: []string{transfer1}},
	{check: "T2", name: "voided, but moved", sql: `INSERT INTO ledger_entries (transfer_id, account_id, delta, account_version) VALUES ('` + transfer3 + `', '` + account1 + `', -50, 8)`, ids: []string{transfer3}},
	{check: "T3", name: "a lost update", sql: `UPDATE accounts SET balance = 850 WHERE id = '` + account1 + `'`, ids: []string{account1}},
	{check: "T3", name: "money on an account without an entry", sql: `UPDATE accounts SET balance = 501 WHERE id = '` + account3 + `'`, ids: []string{account3}},
	{check: "T3", name: "a balance below the held amount", sql: `ALTER TABLE accounts DROP CONSTRAINT accounts_funds; UPDATE accounts SET held = 251 WHERE id = '` + account2 + `'`, ids: []string{account2}},
	{check: "T3", name: "a negative held amount", sql: `ALTER TABLE accounts DROP CONSTRAINT accounts_held_check; UPDATE accounts SET held = -1 WHERE id = '` + account2 + `'`, ids: []string{account2}},
	{check: "T3 held", name: "a hold that holds nothing", sql: `UPDATE accounts SET held = 0 WHERE id = '` + account1 + `'`, ids: []string{account1}},
	{check: "T3 held", name: "money held for no transfer", sql: `UPDATE accounts SET held = 1 WHERE id = '` + account3 + `'`, ids: []string{account3}},
	{check: "T3 held", name: "voided, but still held", sql: `UPDATE accounts SET held = 120 WHERE id = '` + account1 + `'`, ids: []string{account1}},
	{check: "T4", name: "a late write", sql: noEntries + `UPDATE ledger_entries SET fence = 4 WHERE transfer_id = '` + transfer2 + `' AND account_id = '` + account1 + `'`, ids: []string{"3"}},
	{check: "T4 unfenced", name: "a guard without a fence on the entry", sql: noEntries + `UPDATE accounts SET fence_epoch = 'etcd'; UPDATE ledger_entries SET fence = 0 WHERE id = 1`, ids: []string{"1"}},
	{check: "T4 unfenced", name: "a fence of another epoch", sql: noEntries + `UPDATE accounts SET fence_epoch = 'etcd'; UPDATE ledger_entries SET fence_epoch = 'x' WHERE id = 1`, ids: []string{"1"}},
	{check: "I-ONCE transfers", name: "one key, two transfers", sql: `UPDATE transfers SET idempotency_key = 'k1' WHERE id = '` + transfer2 + `'`, ids: []string{client + " k1"}},
	{check: "I-ONCE transfers", name: "one key, two transfers within the day for which its answer is kept", sql: reuses("22 hours 59 minutes", "201"), ids: []string{client + " k1"}},
	{check: "I-ONCE transfers", name: "used again after years, while its answer was still stored", sql: `UPDATE transfers SET idempotency_key = 'k1', created_at = '2028-01-01' WHERE id = '` + transfer2 + `'`, ids: []string{client + " k1"}},
	{check: "I-ONCE answers", name: "moved, but the stored answer is a refusal", sql: `UPDATE idempotency_keys SET status = 409 WHERE key = 'k1'`, ids: []string{client + " k1"}},
	{check: "I-ONCE answers", name: "moved, but without a stored answer", sql: `DELETE FROM idempotency_keys WHERE key = 'k1'; UPDATE transfers SET created_at = now() WHERE idempotency_key = 'k1'`, ids: []string{client + " k1"}},

	{check: "I-ACK made", name: "acknowledged, but lost", sql: noEntries + `DELETE FROM ledger_entries WHERE transfer_id = '` + transfer1 + `'; DELETE FROM transfers WHERE id = '` + transfer1 + `'`, ids: []string{"k1"}},
	{check: "I-ACK made", name: "another amount than requested", sql: `UPDATE transfers SET amount = 101, settled = 101 WHERE id = '` + transfer1 + `'`, ids: []string{"k1"}},
	{check: "I-ACK made", name: "the other way round", sql: `UPDATE transfers SET from_id = to_id, to_id = from_id WHERE id = '` + transfer1 + `'`, ids: []string{"k1"}},
	{check: "I-ACK made", name: "answered with another amount", replies: forgery("k1", func(r *traffic.Record) {
		r.Body = []byte(`{"id":"` + transfer1 + `","from":"` + account1 + `","to":"` + account2 + `","amount":99,"state":"posted"}`)
	}), ids: []string{"k1"}},
	{check: "I-ACK made", name: "answered as moved, but only held", replies: forgery("k5", func(r *traffic.Record) { r.Action = Pay }), ids: []string{"k5"}},
	{check: "I-ACK made", name: "answered without a transfer", replies: forgery("k1", func(r *traffic.Record) { r.Body = []byte(`<html>`) }), ids: []string{"k1"}},
	{check: "I-ACK made", name: "answered with another expiry", sql: `UPDATE transfers SET expires_at = '2098-01-01' WHERE id = '` + transfer5 + `'`, ids: []string{"k5"}},
	{check: "I-ACK made", name: "held for another time than requested", replies: forgery("k2", func(r *traffic.Record) { move(r.Intent).Hold = &Hold{For: time.Hour} }), ids: []string{"k2"}},
	{check: "I-ACK made", name: "made for another client", sql: `UPDATE transfers SET client_id = '00000000-0000-0000-0000-0000000000c2' WHERE id = '` + transfer1 + `'`, ids: []string{"k1"}},
	{check: "I-ACK ended", name: "answered as posted, but expired", sql: `UPDATE transfers SET state = 'expired', settled = 0 WHERE id = '` + transfer2 + `'`, ids: []string{"post-k2"}},
	{check: "I-ACK ended", name: "posted in full instead of in part", sql: `UPDATE transfers SET settled = 200 WHERE id = '` + transfer2 + `'`, ids: []string{"post-k2"}},
	{check: "I-ACK ended", name: "answered as voided, but posted", sql: `UPDATE transfers SET state = 'posted', settled = 50 WHERE id = '` + transfer3 + `'`, ids: []string{"void-k3"}},
	{check: "I-REJ", name: "refused, but executed", replies: forgery("k1", refusedWith("insufficient-funds")), ids: []string{transfer1}},
	{check: "I-REJ", name: "never sent, but executed", replies: forgery("k1", func(r *traffic.Record) {
		r.Outcome, r.Attempts = traffic.Open, []traffic.Attempt{{Outcome: traffic.Open}}
	}), ids: []string{transfer1}},
	{check: "I-REJ unasked", name: "without a request", replies: func(records map[string]traffic.Record) { delete(records, "k5") }, ids: []string{transfer5}},
	{check: "I-HOLD answered", name: "posted and voided, both answered ok", replies: forgery("void-k2", func(r *traffic.Record) { r.Outcome = traffic.OK }), ids: []string{transfer2}},
	{check: "I-HOLD answered", name: "posted, but the void was answered as expired", replies: forgery("void-k2", refusedWith("expired")), ids: []string{transfer2}},
	{check: "I-HOLD answered", name: "answered as settled, but expired", replies: forgery("void-k4", refusedWith("already-settled")), ids: []string{transfer4}},
	{check: "I-HOLD answered", name: "answered as expired, but still held", replies: func(records map[string]traffic.Record) {
		forgery("post-k4", func(r *traffic.Record) { move(r.Intent).Of = records["k5"].Made })(records)
	}, ids: []string{transfer5}},
	{check: "I-HOLD unasked", name: "posted without a request", replies: func(records map[string]traffic.Record) { delete(records, "post-k2") }, ids: []string{transfer2}},
	{check: "I-HOLD unasked", name: "voided by a request that was never sent", replies: forgery("void-k3", func(r *traffic.Record) { r.Attempts = nil }), ids: []string{transfer3}},
	{check: "I-HOLD over", name: "expired, but still held", sql: `UPDATE transfers SET expires_at = now() - interval '1 second' WHERE id = '` + transfer5 + `'`, ids: []string{transfer5}},
	{check: "I-HOLD late", name: "posted after its expiry", sql: `UPDATE transfers SET ended_at = expires_at + interval '2 milliseconds' WHERE id = '` + transfer2 + `'`, ids: []string{transfer2}},
	{check: "I-HOLD late", name: "expired too early", sql: `UPDATE transfers SET ended_at = expires_at - interval '1 millisecond' WHERE id = '` + transfer4 + `'`, ids: []string{transfer4}},
	{check: "T1 planned", name: "balance and opening both raised", sql: bothRaised, ids: []string{"EUR off by 100"}},
	{check: "T1 planned", name: "an account that is not in the plan", sql: accountBeside, ids: []string{"EUR off by 70"}},
	{check: "T3 planned", name: "balance and opening both raised", sql: bothRaised, ids: []string{account3}},
	{check: "T3 planned", name: "an account that is not in the plan", sql: accountBeside, ids: []string{"00000000-0000-0000-0000-0000000000a9"}},
	{check: "T3 planned", name: "a missing account", sql: `DELETE FROM accounts WHERE id = '` + account3 + `'`, ids: []string{account3}},
	{check: "I-REJ", name: "abandoned after busy, but executed", replies: forgery("k1", func(r *traffic.Record) {
		r.Outcome, r.Attempts = traffic.Open, []traffic.Attempt{{Outcome: traffic.Open, Sends: 1}}
	}), ids: []string{transfer1}},
	{check: "I-REJ otherwise", name: "another amount, without an answer", sql: `UPDATE transfers SET amount = 101, settled = 101 WHERE id = '` + transfer1 + `'`, replies: forgery("k1", func(r *traffic.Record) { r.Outcome = traffic.Unknown }), ids: []string{transfer1}},
	{check: "I-REJ otherwise", name: "the refused request under the key, not the successful one", sql: `UPDATE transfers SET amount = 101, settled = 101 WHERE id = '` + transfer1 + `'`, ids: []string{transfer1}},
	{check: "I-REJ otherwise", name: "from the account of another client", sql: `UPDATE transfers SET from_id = '` + account3 + `' WHERE id = '` + transfer1 + `'`, replies: forgery("k1", func(r *traffic.Record) { move(r.Intent).From = uuid.MustParse(account3) }), ids: []string{transfer1}},
	{check: "I-REJ otherwise", name: "dollars instead of euros", sql: `UPDATE transfers SET currency = 'USD' WHERE id = '` + transfer1 + `'`, ids: []string{transfer1}},
	{check: "I-REJ otherwise", name: "moved instead of held", replies: forgery("k1", func(r *traffic.Record) { r.Action = Reserve }), ids: []string{transfer1}},
	{check: "I-REJ otherwise", name: "held for an hour instead of a second", sql: `UPDATE transfers SET expires_at = created_at + interval '1 hour' WHERE id = '` + transfer2 + `'`, ids: []string{transfer2}},
	{check: "I-HOLD twice", name: "posted again", replies: forgery("void-k2", func(r *traffic.Record) { r.Outcome = traffic.OK }), ids: []string{transfer2}},
	{check: "I-HOLD refused", name: "refused as settled, but never settled", replies: func(records map[string]traffic.Record) { delete(records, "void-k3") }, ids: []string{transfer3}},
	{check: "I-HOLD unasked", name: "posted by another client", replies: func(records map[string]traffic.Record) {
		delete(records, "post-k2")
		forgery("post-steal-k2", func(r *traffic.Record) { r.Outcome = traffic.OK })(records)
	}, ids: []string{transfer2}},
	{check: "I-HOLD unasked", name: "abandoned after busy, but posted", replies: forgery("post-k2", func(r *traffic.Record) { r.Outcome = traffic.Open }), ids: []string{transfer2}},
	{check: "I-HOLD time", name: "posted after its time", replies: sentAt("post-k2", 1060*time.Millisecond), ids: []string{transfer2}},
	{check: "I-HOLD time", name: "refused as expired before its time", replies: sentAt("post-k4", 900*time.Millisecond), ids: []string{transfer4}},
	{check: "I-BODY transfers", name: "answered with another amount", replies: altered("k1", `"amount":100`, `"amount":99`), ids: []string{"k1"}},
	{check: "I-BODY transfers", name: "answered with another currency", replies: altered("k1", `EUR`, `USD`), ids: []string{"k1"}},
	{check: "I-BODY transfers", name: "answered with another time", replies: altered("k1", `00:00:00Z`, `00:00:02Z`), ids: []string{"k1"}},
	{check: "I-BODY transfers", name: "answered with another payee", replies: altered("k1", account2, account3), ids: []string{"k1"}},
	{check: "I-BODY transfers", name: "answered with an extra field", replies: altered("k1", `"state"`, `"fee":0,"state"`), ids: []string{"k1"}},
	{check: "I-BODY transfers", name: "answered with another expiry", replies: altered("k2", `00:00:01Z`, `00:00:02Z`), ids: []string{"k2"}},
	{check: "I-BODY transfers", name: "answered with less than was posted", replies: altered("post-k2", `"settled":150`, `"settled":15`), ids: []string{"post-k2"}},
	{check: "I-BODY transfers", name: "answered as moved, but held", replies: altered("k2", `"reserved"`, `"posted"`), ids: []string{"k2"}},
	{check: "I-BODY transfers", name: "read as another transfer", replies: altered("late", transfer2, transfer3), ids: []string{"late"}},
	{check: "I-BODY transfers", name: "read as voided, but posted", replies: altered("late", `"posted"`, `"voided"`), ids: []string{"late"}},
	{check: "I-BODY transfers", name: "a payment that is read as a hold", replies: altered("paid", `"posted"`, `"reserved"`), ids: []string{"paid"}},
	{check: "I-BODY state", name: "reserved after its post was acknowledged", replies: forgery("late", func(r *traffic.Record) { r.Body = []byte(transferBody(transfer2, reservedUntil+`200`)) }), ids: []string{"late"}},
	{check: "I-BODY state", name: "posted before that was requested", replies: forgery("early", func(r *traffic.Record) { r.Body = []byte(transferBody(transfer2, postedBody)) }), ids: []string{"early"}},
	{check: "I-BODY state", name: "expired before its time", replies: sentAt("over", 500*time.Millisecond), ids: []string{"over"}},
	{check: "I-BODY accounts", name: "another balance", replies: altered("account", `"balance":750`, `"balance":751`), ids: []string{"account"}},
	{check: "I-BODY accounts", name: "held and available long after its end", replies: heldAt(6 * time.Second), ids: []string{"account"}},
	{check: "I-BODY accounts", name: "held, but shown as available", replies: func(records map[string]traffic.Record) {
		altered("account", `"available":680`, `"available":750`)(records)
		sentAt("account", 6*time.Second)(records) // no hold that has ended can be uncommitted still
	}, ids: []string{"account"}},
	{check: "I-BODY accounts", name: "a negative held amount", replies: altered("account", `"held":70,"available":680`, `"held":-1,"available":751`), ids: []string{"account"}},
	{check: "I-BODY accounts", name: "an entry is missing", replies: altered("account", `},{"transfer":"`+transfer1+`","delta":-100,"version":1,"created_at":"2026-01-01T00:00:00Z"}`, `}`), ids: []string{"account"}},
	{check: "I-BODY accounts", name: "an entry of another amount", replies: altered("account", `-150`, `-151`), ids: []string{"account"}},
	{check: "I-BODY accounts", name: "another account was requested", replies: forgery("account", func(r *traffic.Record) { r.Of = Read{Account: uuid.MustParse(account2)} }), ids: []string{"account"}},
	{check: "I-BODY accounts", name: "the account of another client", replies: forgery("account", func(r *traffic.Record) { r.Client = 1 }), ids: []string{"account"}},
	{check: "I-BODY accounts", name: "a malformed answer", replies: forgery("account", func(r *traffic.Record) { r.Body = []byte(`[]`) }), ids: []string{"account"}},
	{check: "I-BODY accounts", name: "balance and opening both raised, as shown", sql: `UPDATE accounts SET opening = opening + 100, balance = balance + 100 WHERE id = '` + account1 + `'`, replies: altered("account", `"balance":750,"held":70,"available":680`, `"balance":850,"held":70,"available":780`), ids: []string{"account"}},
}
