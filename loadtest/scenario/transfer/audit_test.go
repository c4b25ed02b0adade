// SPDX-License-Identifier: MIT

package transfer

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/loadtest"
	"shop/loadtest/internal/testbed"
	"shop/loadtest/judge"
	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
	"shop/transfer"
)

// The bank of these tests: of 1000, one account paid 100 to another, 150 of a
// hold of 200, has 70 on hold, and had 50 and 60, which were voided and expired.
// A third account was never used: the checks must see it too.
const correctAccounts = `
INSERT INTO accounts (id, owner_id, currency, opening, balance, held, version, created_at) VALUES
	('00000000-0000-0000-0000-0000000000a1', '00000000-0000-0000-0000-0000000000c1', 'EUR', 1000, 750, 70, 7, '2025-12-31T23:00:00Z'),
	('00000000-0000-0000-0000-0000000000a2', '00000000-0000-0000-0000-0000000000c2', 'EUR', 0, 250, 0, 2, '2025-12-31T23:00:00Z'),
	('00000000-0000-0000-0000-0000000000a3', '00000000-0000-0000-0000-0000000000c3', 'EUR', 500, 500, 0, 0, '2025-12-31T23:00:00Z');
INSERT INTO transfers (id, client_id, idempotency_key, from_id, to_id, amount, currency, state, settled, created_at, expires_at, ended_at)
SELECT ('00000000-0000-0000-0000-00000000000' || n)::uuid, '00000000-0000-0000-0000-0000000000c1', 'k' || n,
       '00000000-0000-0000-0000-0000000000a1', '00000000-0000-0000-0000-0000000000a2',
       amount, 'EUR', state, settled, '2026-01-01T00:00:00Z', expires_at::timestamptz, ended_at::timestamptz
FROM (VALUES (1, 100, 'posted', 100, NULL, '2026-01-01T00:00:00Z'),
             (2, 200, 'posted', 150, '2026-01-01T00:00:01Z', '2026-01-01T00:00:00.5Z'),
             (3, 50, 'voided', 0, '2026-01-01T00:00:01Z', '2026-01-01T00:00:00.6Z'),
             (4, 60, 'expired', 0, '2026-01-01T00:00:01Z', '2026-01-01T00:00:01.01Z'),
             (5, 70, 'reserved', 0, '2099-01-01T00:00:00Z', NULL)) t (n, amount, state, settled, expires_at, ended_at);
INSERT INTO ledger_entries (transfer_id, account_id, delta, account_version, fence, fence_epoch, created_at) VALUES
	('00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-0000000000a1', -100, 1, 5, 'etcd', '2026-01-01T00:00:00Z'),
	('00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-0000000000a2', 100, 1, 5, 'etcd', '2026-01-01T00:00:00Z'),
	('00000000-0000-0000-0000-000000000002', '00000000-0000-0000-0000-0000000000a1', -150, 3, 7, 'etcd', '2026-01-01T00:00:00.5Z'),
	('00000000-0000-0000-0000-000000000002', '00000000-0000-0000-0000-0000000000a2', 150, 2, 7, 'etcd', '2026-01-01T00:00:00.5Z');
INSERT INTO idempotency_keys (client_id, key, fingerprint, status, body, created_at)
SELECT '00000000-0000-0000-0000-0000000000c1', key, sha256(key::bytea), status, '', '2026-01-01T00:00:00Z'
FROM (VALUES ('k1', 201), ('k2', 201), ('k3', 201), ('k4', 201), ('k5', 201), ('post-k2', 201), ('void-k2', 409)) k (key, status);`

const (
	client    = "00000000-0000-0000-0000-0000000000c1"
	transfer1 = "00000000-0000-0000-0000-000000000001"
	transfer2 = "00000000-0000-0000-0000-000000000002"
	transfer3 = "00000000-0000-0000-0000-000000000003"
	transfer4 = "00000000-0000-0000-0000-000000000004"
	transfer5 = "00000000-0000-0000-0000-000000000005"
	account1  = "00000000-0000-0000-0000-0000000000a1"
	account2  = "00000000-0000-0000-0000-0000000000a2"
	account3  = "00000000-0000-0000-0000-0000000000a3"
)

// opened returns the accounts of correctAccounts' plan, and their owners.
func opened() ([]money.Account, []loadtest.Credentials) {
	id := uuid.MustParse
	accounts := []money.Account{
		{ID: id(account1), Client: 0, Opening: 1000, Currency: "EUR"},
		{ID: id(account2), Client: 1, Opening: 0, Currency: "EUR"},
		{ID: id(account3), Client: 2, Opening: 500, Currency: "EUR"},
	}
	return accounts, []loadtest.Credentials{
		{ID: id(client)}, {ID: id("00000000-0000-0000-0000-0000000000c2")}, {ID: id("00000000-0000-0000-0000-0000000000c3")}, {}, {ID: id("00000000-0000-0000-0000-0000000000c5")},
	}
}

// epoch is the start of the clock of correctAccounts' clients.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// The bodies of answers, from the amount on.
const (
	reservedUntil = `"state":"reserved","settled":0,"expires_at":"2026-01-01T00:00:01Z","amount":`
	postedBody    = `"state":"posted","settled":150,"amount":200,"expires_at":"2026-01-01T00:00:01Z","ended_at":"2026-01-01T00:00:00.5Z"`
	voidedBody    = `"state":"voided","settled":0,"amount":50,"expires_at":"2026-01-01T00:00:01Z","ended_at":"2026-01-01T00:00:00.6Z"`
	expiredBody   = `"state":"expired","settled":0,"amount":60,"expires_at":"2026-01-01T00:00:01Z","ended_at":"2026-01-01T00:00:01.01Z"`
	paidBody      = `"state":"posted","settled":100,"amount":100,"ended_at":"2026-01-01T00:00:00Z"`
	accountBody   = `{"id":"` + account1 + `","currency":"EUR","balance":750,"held":70,"available":680,"created_at":"2025-12-31T23:00:00Z","entries":[` +
		`{"transfer":"` + transfer2 + `","delta":-150,"version":3,"created_at":"2026-01-01T00:00:00.5Z"},` +
		`{"transfer":"` + transfer1 + `","delta":-100,"version":1,"created_at":"2026-01-01T00:00:00Z"}]}`
)

func transferBody(id, rest string) string {
	return `{"id":"` + id + `","from":"` + account1 + `","to":"` + account2 + `","currency":"EUR","created_at":"2026-01-01T00:00:00Z",` + rest + `}`
}

// correctReplies returns the replies that the clients of correctAccounts got.
func correctReplies() map[string]traffic.Record {
	from, to := uuid.MustParse(account1), uuid.MustParse(account2)
	records := map[string]traffic.Record{}
	add := func(i traffic.Intent, ms int, outcome traffic.Outcome, problem, id, body string) {
		r := traffic.Record{Intent: i, Outcome: outcome, Body: []byte(body)}
		if id != "" {
			r.Made = uuid.MustParse(id)
		}
		at := time.Duration(ms) * time.Millisecond
		r.Attempts = []traffic.Attempt{{Outcome: outcome, Problem: problem, Sends: 1, Start: at, End: at + 2*time.Millisecond}}
		records[i.Key] = r
	}
	ask := func(key string, action traffic.Action, m Move) traffic.Intent {
		return traffic.Intent{Key: key, Action: action, Of: &m}
	}
	pays := func(amount int64) Move { return Move{From: from, To: to, Amount: amount} }
	holds := func(amount int64) Move {
		return Move{From: from, To: to, Amount: amount, Hold: &Hold{For: time.Second}}
	}
	end := func(id string, amount int64) Move {
		return Move{From: from, To: to, Amount: amount, Of: uuid.MustParse(id)}
	}
	add(ask("k1", Pay, pays(100)), 0, traffic.OK, "", transfer1, transferBody(transfer1, paidBody))
	add(ask("k2", Reserve, holds(200)), 0, traffic.OK, "", transfer2, transferBody(transfer2, reservedUntil+`200`))
	add(ask("post-k2", PostHold, end(transfer2, 150)), 499, traffic.OK, "", transfer2, transferBody(transfer2, postedBody))
	add(ask("void-k2", VoidHold, end(transfer2, 0)), 499, traffic.Rejected, "already-settled", "", "")
	add(ask("k3", Reserve, holds(50)), 0, traffic.OK, "", transfer3, transferBody(transfer3, reservedUntil+`50`))
	add(ask("post-k3", PostHold, end(transfer3, 0)), 599, traffic.Rejected, "already-settled", "", "")
	add(ask("void-k3", VoidHold, end(transfer3, 0)), 599, traffic.OK, "", transfer3, transferBody(transfer3, voidedBody))
	add(ask("k4", Reserve, holds(60)), 0, traffic.OK, "", transfer4, transferBody(transfer4, reservedUntil+`60`))
	add(ask("post-k4", PostHold, end(transfer4, 0)), 1010, traffic.Rejected, "expired", "", "")
	add(ask("void-k4", VoidHold, end(transfer4, 0)), 1010, traffic.Unknown, "", "", "")
	add(ask("k5", Reserve, pays(70)), 0, traffic.OK, "", transfer5, transferBody(transfer5, `"state":"reserved","settled":0,"amount":70,"expires_at":"2099-01-01T00:00:00Z"`))
	add(ask("k6", Pay, pays(9999)), 0, traffic.Rejected, "insufficient-funds", "", `{"status":409,"account":"`+account1+`","wanted":9999,"available":680}`)
	add(ask("k7", Pay, pays(1)), 0, traffic.Unknown, "", "", "") // it did not happen
	add(ask("k8", Pay, pays(1)), 0, traffic.Open, "busy", "", "")
	add(*reusedForAmount(records["k1"]), 10, traffic.Rejected, "idempotency-key-reused", "", "")
	add(*strangerEnds(PostHold)(records["k2"]), 10, traffic.Rejected, "not-found", "", "")
	read := func(key, id string) traffic.Intent {
		return *readIntent(0, key, Read{Transfer: uuid.MustParse(id)})
	}
	add(read("early", transfer2), 10, traffic.OK, "", transfer2, transferBody(transfer2, reservedUntil+`200`))
	add(read("late", transfer2), 510, traffic.OK, "", transfer2, transferBody(transfer2, postedBody))
	add(read("over", transfer4), 1100, traffic.OK, "", transfer4, transferBody(transfer4, expiredBody))
	add(read("paid", transfer1), 1100, traffic.OK, "", transfer1, transferBody(transfer1, paidBody))
	add(*readIntent(0, "account", Read{Account: from}), 1100, traffic.OK, "", account1, accountBody)
	return records
}

// violated creates a bank with a violation, and loads its clients' replies.
func violated(t *testing.T, plant violation) *pgx.Conn {
	t.Helper()
	conn := testbed.Schema(t, "transfer")
	testbed.Exec(t, conn, correctAccounts)
	testbed.Exec(t, conn, plant.sql)
	answers := correctReplies()
	if plant.replies != nil {
		plant.replies(answers)
	}
	var records []traffic.Record
	for _, r := range answers {
		records = append(records, r)
	}
	accounts, clients := opened()
	if err := LoadHistory(t.Context(), conn, accounts, records, clients, epoch); err != nil {
		t.Fatal(err)
	}
	return conn
}

// findIn runs one check on a bank, and returns the ids that it finds.
func findIn(t *testing.T, check invariant.Check, plant violation) []string {
	t.Helper()
	findings, err := invariant.Run(t.Context(), []invariant.Check{check}, invariant.SQL(violated(t, plant)))
	if err != nil {
		t.Fatal(err)
	}
	return findings[check.Invariant].IDs
}

func TestAuditTransfer_FindsEachPlantedViolation(t *testing.T) {
	for _, check := range slices.Concat(transfer.Invariants.Checks, HistoryChecks, ClockChecks, BodyChecks) {
		planted := slices.DeleteFunc(slices.Clone(violations), func(p violation) bool { return p.check != check.Name })
		if len(planted) == 0 {
			t.Errorf("no violation is planted for %q", check.Name)
		}
		for _, plant := range planted {
			t.Run(check.Name+"/"+plant.name, func(t *testing.T) {
				if diff := cmp.Diff(plant.ids, findIn(t, check, plant)); diff != "" {
					t.Errorf("what the check found (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestAuditTransfer_FindsNothingInCorrectAccounts(t *testing.T) {
	for _, check := range slices.Concat(transfer.Invariants.Checks, HistoryChecks, ClockChecks, BodyChecks) {
		if ids := findIn(t, check, violation{}); len(ids) != 0 {
			t.Errorf("%s found %v", check.Name, ids)
		}
	}
}

// The end of a hold is seen when it is committed, which may be later than its time.
func TestAuditTransfer_AHoldIsHeldUntilItsEndIsCommitted(t *testing.T) {
	for _, check := range BodyChecks {
		if ids := findIn(t, check, violation{replies: heldAt(2 * time.Second)}); len(ids) != 0 {
			t.Errorf("%s found %v", check.Name, ids)
		}
	}
}

func TestAuditTransfer_MeasuresTheDriftOfBalancesFromTheirEntries(t *testing.T) {
	conn := testbed.Schema(t, "transfer")
	testbed.Exec(t, conn, correctAccounts)
	want := map[string]int64{"T1": 0, "T2": 0, "T3": 0, "T4": 0, "I-ONCE": 0, "drift": 0}
	for _, change := range []string{``, `
		UPDATE accounts SET balance = balance + 30 WHERE id = '` + account2 + `';
		UPDATE accounts SET balance = balance - 30 WHERE id = '` + account3 + `'`} {
		testbed.Exec(t, conn, change)
		counts, err := transfer.Audit(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, counts); diff != "" {
			t.Errorf("after %q (-want +got):\n%s", change, diff)
		}
		want["T3"], want["drift"] = 2, 60 // T1 finds nothing: one account has what the other has lost
	}
}

// reuses uses the first key again for the second transfer, this long after the first.
func reuses(gap, status string) string {
	return `UPDATE transfers SET idempotency_key = 'k1', created_at = created_at + interval '` + gap + `' WHERE id = '` + transfer2 + `';
		UPDATE idempotency_keys SET created_at = created_at + interval '` + gap + `', status = ` + status + ` WHERE key = 'k1';`
}

// The answer of a key is purged after a day. After that, the key is a new request.
func TestAuditTransfer_AKeyMayBeUsedAgainAfterItsAnswerIsPurged(t *testing.T) {
	for name, plant := range map[string]string{
		"done again":             reuses("24 hours", "201"),
		"refused the next time":  `UPDATE idempotency_keys SET created_at = created_at + interval '24 hours', status = 409 WHERE key = 'k1'`,
		"purged the second time": reuses("24 hours", "201") + `DELETE FROM idempotency_keys WHERE key = 'k1'`,
	} {
		for _, check := range transfer.Invariants.Checks {
			if ids := findIn(t, check, violation{sql: plant}); len(ids) != 0 {
				t.Errorf("%s: %s found %v", name, check.Name, ids)
			}
		}
	}
}

// The books of a service that raises an opening, or opens an account, are consistent.
func TestDrift_CountsFromWhatThePlanOpened(t *testing.T) {
	for name, c := range map[string]struct {
		sql  string
		want int64
	}{
		"as it was opened": {``, 0},
		"both raised":      {bothRaised, 100},
		"an extra account": {accountBeside, 70},
		"one is missing":   {`DELETE FROM accounts WHERE id = '` + account3 + `'`, 500},
	} {
		if n, err := invariant.Number(t.Context(), violated(t, violation{sql: c.sql}), driftSQL("proof_accounts")); err != nil || n != c.want {
			t.Errorf("%s: drift %d, %v, want %d", name, n, err, c.want)
		}
	}
}

// The service's own openings must not matter while the load runs either.
func TestMoneySQL_SeesARaisedOpeningAndAnUnplannedAccount(t *testing.T) {
	accounts, _ := opened()
	for name, c := range map[string]struct {
		sql  string
		want int
	}{
		"as it was opened": {``, 0},
		"both raised":      {bothRaised, 2}, // the sum, and the drift
		"an extra account": {accountBeside, 2},
	} {
		conn := violated(t, violation{sql: c.sql})
		rows, _ := conn.Query(t.Context(), moneySQL(accounts))
		levels, err := pgx.CollectRows(rows, pgx.RowToStructByPos[judge.Level])
		if err != nil {
			t.Fatal(err)
		}
		if found := judge.Apart([]judge.Sample{{Levels: levels}}); len(found) != c.want {
			t.Errorf("%s: %v, want %d", name, found, c.want)
		}
	}
}

func TestMisreported_ARefusalNamesThePayerAndTheAmount(t *testing.T) {
	wrong := func(edit func(map[string]traffic.Record)) []string {
		records := correctReplies()
		if edit != nil {
			edit(records)
		}
		return misreported([]traffic.Record{records["k1"], records["k6"], records["account"]})
	}
	if found := wrong(nil); len(found) != 0 {
		t.Errorf("correct accounts: %v", found)
	}
	for name, edit := range map[string]func(map[string]traffic.Record){
		"another account":    altered("k6", account1, account2),
		"another amount":     altered("k6", `9999`, `999`),
		"enough":             altered("k6", `680`, `9999`),
		"a negative number":  altered("k6", `680`, `-1`),
		"without the number": altered("k6", `,"available":680`, ``),
		"another status":     altered("k6", `409`, `404`),
		"no text":            forgery("k6", func(r *traffic.Record) { r.Body = nil }),
	} {
		if found := wrong(edit); len(found) != 1 || !strings.HasPrefix(found[0], "k6: ") {
			t.Errorf("%s: %v", name, found)
		}
	}
}
