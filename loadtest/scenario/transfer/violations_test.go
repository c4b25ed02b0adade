package transfer

import (
	"time"

	"shop/loadtest"
)

// violation is planted by SQL in correctAccounts, or by an edit of the replies that clients got.
type violation struct {
	check   string // which must find it
	name    string
	sql     string
	replies func(map[string]loadtest.Record)
	ids     []string
}

// forgery edits the record of one key.
func forgery(key string, edit func(*loadtest.Record)) func(map[string]loadtest.Record) {
	return func(records map[string]loadtest.Record) {
		r := records[key]
		edit(&r)
		records[key] = r
	}
}

func refusedWith(problem string) func(*loadtest.Record) {
	return func(r *loadtest.Record) {
		r.Outcome, r.Body = loadtest.Rejected, nil
		r.Attempts = []loadtest.Attempt{{Outcome: loadtest.Rejected, Problem: problem, Sends: 1}}
	}
}

const noEntries = `ALTER TABLE ledger_entries DISABLE TRIGGER append_only; `

// What a service does that prints money and keeps its books.
const (
	bothRaised    = `UPDATE accounts SET opening = opening + 100, balance = balance + 100 WHERE id = '` + account3 + `'`
	accountBeside = `INSERT INTO accounts (id, owner_id, currency, opening, balance) VALUES ('00000000-0000-0000-0000-0000000000a9', '` + client + `', 'EUR', 70, 70)`
)

var violations = []violation{
	{check: "T1 opened", name: "balance and opening both raised", sql: bothRaised, ids: []string{account3}},
	{check: "T1 opened", name: "an account that was not opened", sql: accountBeside, ids: []string{"00000000-0000-0000-0000-0000000000a9"}},
	{check: "T1 opened", name: "an account that is gone", sql: `DELETE FROM accounts WHERE id = '` + account3 + `'`, ids: []string{account3}},
	{check: "T1 opened", name: "an account that changed hands", sql: `UPDATE accounts SET owner_id = '` + client + `' WHERE id = '` + account3 + `'`, ids: []string{account3}},
	{check: "T1 opened", name: "euros that became dollars", sql: `UPDATE accounts SET currency = 'USD' WHERE id = '` + account3 + `'`, ids: []string{account3}},
	{check: "T1", name: "money from nowhere", sql: `UPDATE accounts SET balance = balance + 5 WHERE id = '` + account3 + `'`, ids: []string{"EUR off by 5"}},
	{check: "T1", name: "money lost by an account without entries", sql: `UPDATE accounts SET balance = 0 WHERE id = '` + account3 + `'`, ids: []string{"EUR off by -500"}},
	{check: "T2", name: "posted without entries", sql: noEntries + `DELETE FROM ledger_entries WHERE transfer_id = '` + transfer1 + `'`, ids: []string{transfer1}},
	{check: "T2", name: "one entry is missing", sql: noEntries + `DELETE FROM ledger_entries WHERE transfer_id = '` + transfer1 + `' AND delta > 0`, ids: []string{transfer1}},
	{check: "T2", name: "entries of another amount", sql: noEntries + `UPDATE ledger_entries SET delta = 2 * delta WHERE transfer_id = '` + transfer1 + `'`, ids: []string{transfer1}},
	{check: "T2", name: "entries the wrong way round", sql: noEntries + `UPDATE ledger_entries SET delta = -delta WHERE transfer_id = '` + transfer1 + `'`, ids: []string{transfer1}},
	{check: "T2", name: "voided, and it moved", sql: `INSERT INTO ledger_entries (transfer_id, account_id, delta, account_version) VALUES ('` + transfer3 + `', '` + account1 + `', -50, 8)`, ids: []string{transfer3}},
	{check: "T3", name: "a lost update", sql: `UPDATE accounts SET balance = 850 WHERE id = '` + account1 + `'`, ids: []string{account1}},
	{check: "T3", name: "money on an account that no entry names", sql: `UPDATE accounts SET balance = 501 WHERE id = '` + account3 + `'`, ids: []string{account3}},
	{check: "T3", name: "less than it holds", sql: `ALTER TABLE accounts DROP CONSTRAINT accounts_funds; UPDATE accounts SET held = 251 WHERE id = '` + account2 + `'`, ids: []string{account2}},
	{check: "T3", name: "it holds less than nothing", sql: `ALTER TABLE accounts DROP CONSTRAINT accounts_held_check; UPDATE accounts SET held = -1 WHERE id = '` + account2 + `'`, ids: []string{account2}},
	{check: "T3 held", name: "a hold that holds nothing", sql: `UPDATE accounts SET held = 0 WHERE id = '` + account1 + `'`, ids: []string{account1}},
	{check: "T3 held", name: "money held for no transfer", sql: `UPDATE accounts SET held = 1 WHERE id = '` + account3 + `'`, ids: []string{account3}},
	{check: "T3 held", name: "voided, and still held", sql: `UPDATE accounts SET held = 120 WHERE id = '` + account1 + `'`, ids: []string{account1}},
	{check: "T4", name: "a late write", sql: noEntries + `UPDATE ledger_entries SET fence = 4 WHERE transfer_id = '` + transfer2 + `' AND account_id = '` + account1 + `'`, ids: []string{"3"}},
	{check: "T4 unfenced", name: "a guard that leaves no trace", sql: noEntries + `UPDATE accounts SET fence_epoch = 'etcd'; UPDATE ledger_entries SET fence = 0 WHERE id = 1`, ids: []string{"1"}},
	{check: "T4 unfenced", name: "a fence of another service", sql: noEntries + `UPDATE accounts SET fence_epoch = 'etcd'; UPDATE ledger_entries SET fence_epoch = 'x' WHERE id = 1`, ids: []string{"1"}},
	{check: "I-ONCE transfers", name: "one key, two transfers", sql: `UPDATE transfers SET idempotency_key = 'k1' WHERE id = '` + transfer2 + `'`, ids: []string{client + " k1"}},
	{check: "I-ONCE transfers", name: "one key, two transfers, within the day for which its answer is kept", sql: reuses("22 hours 59 minutes", "201"), ids: []string{client + " k1"}},
	{check: "I-ONCE transfers", name: "used again after years, and its answer was still there", sql: `UPDATE transfers SET idempotency_key = 'k1', created_at = '2028-01-01' WHERE id = '` + transfer2 + `'`, ids: []string{client + " k1"}},
	{check: "I-ONCE answers", name: "moved, and refused for ever after", sql: `UPDATE idempotency_keys SET status = 409 WHERE key = 'k1'`, ids: []string{client + " k1"}},
	{check: "I-ONCE answers", name: "moved, and the key does not know it", sql: `DELETE FROM idempotency_keys WHERE key = 'k1'; UPDATE transfers SET created_at = now() WHERE idempotency_key = 'k1'`, ids: []string{client + " k1"}},

	{check: "I-ACK made", name: "acknowledged, and lost", sql: noEntries + `DELETE FROM ledger_entries WHERE transfer_id = '` + transfer1 + `'; DELETE FROM transfers WHERE id = '` + transfer1 + `'`, ids: []string{"k1"}},
	{check: "I-ACK made", name: "another amount than was asked for", sql: `UPDATE transfers SET amount = 101, settled = 101 WHERE id = '` + transfer1 + `'`, ids: []string{"k1"}},
	{check: "I-ACK made", name: "the other way round", sql: `UPDATE transfers SET from_id = to_id, to_id = from_id WHERE id = '` + transfer1 + `'`, ids: []string{"k1"}},
	{check: "I-ACK made", name: "told of another amount", replies: forgery("k1", func(r *loadtest.Record) {
		r.Body = []byte(`{"id":"` + transfer1 + `","from":"` + account1 + `","to":"` + account2 + `","amount":99,"state":"posted"}`)
	}), ids: []string{"k1"}},
	{check: "I-ACK made", name: "told that it moved, and it is only held", replies: forgery("k5", func(r *loadtest.Record) { r.Action = Pay }), ids: []string{"k5"}},
	{check: "I-ACK made", name: "told of no transfer at all", replies: forgery("k1", func(r *loadtest.Record) { r.Body = []byte(`<html>`) }), ids: []string{"k1"}},
	{check: "I-ACK made", name: "told of another end of the hold", sql: `UPDATE transfers SET expires_at = '2098-01-01' WHERE id = '` + transfer5 + `'`, ids: []string{"k5"}},
	{check: "I-ACK made", name: "held for another time than was asked for", replies: forgery("k2", func(r *loadtest.Record) { move(r.Intent).Hold = &Hold{For: time.Hour} }), ids: []string{"k2"}},
	{check: "I-ACK made", name: "made for another client", sql: `UPDATE transfers SET client_id = '00000000-0000-0000-0000-0000000000c2' WHERE id = '` + transfer1 + `'`, ids: []string{"k1"}},
	{check: "I-ACK ended", name: "told posted, and it is expired", sql: `UPDATE transfers SET state = 'expired', settled = 0 WHERE id = '` + transfer2 + `'`, ids: []string{"post-k2"}},
	{check: "I-ACK ended", name: "all of it posted, and a part was asked for", sql: `UPDATE transfers SET settled = 200 WHERE id = '` + transfer2 + `'`, ids: []string{"post-k2"}},
	{check: "I-ACK ended", name: "told voided, and it is posted", sql: `UPDATE transfers SET state = 'posted', settled = 50 WHERE id = '` + transfer3 + `'`, ids: []string{"void-k3"}},
	{check: "I-REJ", name: "refused, and done", replies: forgery("k1", refusedWith("insufficient-funds")), ids: []string{"k1"}},
	{check: "I-REJ", name: "never sent, and done", replies: forgery("k1", func(r *loadtest.Record) {
		r.Outcome, r.Attempts = loadtest.Open, []loadtest.Attempt{{Outcome: loadtest.Open}}
	}), ids: []string{"k1"}},
	{check: "I-REJ unasked", name: "no client asked for it", replies: func(records map[string]loadtest.Record) { delete(records, "k1") }, ids: []string{transfer1}},
	{check: "I-HOLD told", name: "posted and voided, both told ok", replies: forgery("void-k2", func(r *loadtest.Record) { r.Outcome = loadtest.OK }), ids: []string{transfer2}},
	{check: "I-HOLD told", name: "posted, and void told that it expired", replies: forgery("void-k2", refusedWith("expired")), ids: []string{transfer2}},
	{check: "I-HOLD told", name: "told settled, and it expired", replies: forgery("void-k4", refusedWith("already-settled")), ids: []string{transfer4}},
	{check: "I-HOLD told", name: "told expired, and it is still held", replies: func(records map[string]loadtest.Record) {
		forgery("post-k4", func(r *loadtest.Record) { move(r.Intent).Of = records["k5"].Made })(records)
	}, ids: []string{transfer5}},
	{check: "I-HOLD unasked", name: "posted, and no client asked for that", replies: func(records map[string]loadtest.Record) { delete(records, "post-k2") }, ids: []string{transfer2}},
	{check: "I-HOLD unasked", name: "voided by a request that never left", replies: forgery("void-k3", func(r *loadtest.Record) { r.Attempts = nil }), ids: []string{transfer3}},
	{check: "I-HOLD over", name: "over, and still held", sql: `UPDATE transfers SET expires_at = now() - interval '1 second' WHERE id = '` + transfer5 + `'`, ids: []string{transfer5}},
	{check: "I-HOLD late", name: "posted after its end", sql: `UPDATE transfers SET ended_at = expires_at + interval '2 milliseconds' WHERE id = '` + transfer2 + `'`, ids: []string{transfer2}},
	{check: "I-HOLD late", name: "expired before its end", sql: `UPDATE transfers SET ended_at = expires_at - interval '1 millisecond' WHERE id = '` + transfer4 + `'`, ids: []string{transfer4}},
}
