package transfer

import (
	"slices"
	"testing"

	"shop/loadtest"
	"shop/loadtest/internal/testbed"
	"shop/loadtest/scenario/money"
	"shop/locking/invariant"
	"shop/transfer"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// The bank of these tests: of 1000, one account paid 100 to another, 150 of a
// hold of 200, has 70 on hold, and had 50 and 60, which were voided and expired.
// A third account that was never touched: the checks must see it too.
const correctAccounts = `
INSERT INTO accounts (id, owner_id, currency, opening, balance, held, version) VALUES
	('00000000-0000-0000-0000-0000000000a1', '00000000-0000-0000-0000-0000000000c1', 'EUR', 1000, 750, 70, 7),
	('00000000-0000-0000-0000-0000000000a2', '00000000-0000-0000-0000-0000000000c2', 'EUR', 0, 250, 0, 2),
	('00000000-0000-0000-0000-0000000000a3', '00000000-0000-0000-0000-0000000000c3', 'EUR', 500, 500, 0, 0);
INSERT INTO transfers (id, client_id, idempotency_key, from_id, to_id, amount, currency, state, settled, created_at, expires_at, ended_at)
SELECT ('00000000-0000-0000-0000-00000000000' || n)::uuid, '00000000-0000-0000-0000-0000000000c1', 'k' || n,
       '00000000-0000-0000-0000-0000000000a1', '00000000-0000-0000-0000-0000000000a2',
       amount, 'EUR', state, settled, '2026-01-01T00:00:00Z', expires_at::timestamptz, ended_at::timestamptz
FROM (VALUES (1, 100, 'posted', 100, NULL, '2026-01-01T00:00:00Z'),
             (2, 200, 'posted', 150, '2026-01-01T00:00:01Z', '2026-01-01T00:00:00.5Z'),
             (3, 50, 'voided', 0, '2026-01-01T00:00:01Z', '2026-01-01T00:00:00.6Z'),
             (4, 60, 'expired', 0, '2026-01-01T00:00:01Z', '2026-01-01T00:00:01.01Z'),
             (5, 70, 'reserved', 0, '2099-01-01T00:00:00Z', NULL)) t (n, amount, state, settled, expires_at, ended_at);
INSERT INTO ledger_entries (transfer_id, account_id, delta, account_version, fence, fence_epoch) VALUES
	('00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-0000000000a1', -100, 1, 5, 'etcd'),
	('00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-0000000000a2', 100, 1, 5, 'etcd'),
	('00000000-0000-0000-0000-000000000002', '00000000-0000-0000-0000-0000000000a1', -150, 3, 7, 'etcd'),
	('00000000-0000-0000-0000-000000000002', '00000000-0000-0000-0000-0000000000a2', 150, 2, 7, 'etcd');
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

// opened is what the plan of correctAccounts opened, and for whom.
func opened() ([]money.Account, []loadtest.Credentials) {
	id := uuid.MustParse
	return []money.Account{
		{ID: id(account1), Client: 0, Opening: 1000, Currency: "EUR"},
		{ID: id(account2), Client: 1, Opening: 0, Currency: "EUR"},
		{ID: id(account3), Client: 2, Opening: 500, Currency: "EUR"},
	}, []loadtest.Credentials{
		{ID: id(client)}, {ID: id("00000000-0000-0000-0000-0000000000c2")}, {ID: id("00000000-0000-0000-0000-0000000000c3")},
	}
}

// correctReplies are the replies that the clients of correctAccounts got.
func correctReplies() map[string]loadtest.Record {
	from, to := uuid.MustParse(account1), uuid.MustParse(account2)
	records := map[string]loadtest.Record{}
	add := func(key string, action loadtest.Action, m Move, outcome loadtest.Outcome, id, answer string) {
		r := loadtest.Record{Intent: loadtest.Intent{Key: key, Action: action, Of: &m}, Outcome: outcome}
		if id != "" {
			r.Made = uuid.MustParse(id)
			r.Body = []byte(`{"id":"` + id + `","from":"` + account1 + `","to":"` + account2 + `",` + answer + `}`)
		}
		r.Attempts = []loadtest.Attempt{{Outcome: outcome, Problem: answer, Sends: 1}}
		records[key] = r
	}
	pays := func(amount int64) Move { return Move{From: from, To: to, Amount: amount} }
	end := func(id string, amount int64) Move {
		return Move{From: from, To: to, Amount: amount, Of: uuid.MustParse(id)}
	}
	const held = `"state":"reserved","settled":0,"expires_at":"2026-01-01T00:00:01Z","amount":`
	add("k1", Pay, pays(100), loadtest.OK, transfer1, `"state":"posted","settled":100,"amount":100`)
	add("k2", Reserve, pays(200), loadtest.OK, transfer2, held+`200`)
	add("post-k2", PostHold, end(transfer2, 150), loadtest.OK, transfer2, `"state":"posted","settled":150,"amount":200`)
	add("void-k2", VoidHold, end(transfer2, 0), loadtest.Rejected, "", "already-settled")
	add("k3", Reserve, pays(50), loadtest.OK, transfer3, held+`50`)
	add("post-k3", PostHold, end(transfer3, 0), loadtest.Rejected, "", "already-settled")
	add("void-k3", VoidHold, end(transfer3, 0), loadtest.OK, transfer3, `"state":"voided","settled":0,"amount":50`)
	add("k4", Reserve, pays(60), loadtest.OK, transfer4, held+`60`)
	add("post-k4", PostHold, end(transfer4, 0), loadtest.Rejected, "", "expired")
	add("void-k4", VoidHold, end(transfer4, 0), loadtest.Unknown, "", "")
	add("k5", Reserve, pays(70), loadtest.OK, transfer5, `"state":"reserved","settled":0,"amount":70,"expires_at":"2099-01-01T00:00:00Z"`)
	add("k6", Pay, pays(9999), loadtest.Rejected, "", "insufficient-funds")
	add("k7", Pay, pays(1), loadtest.Unknown, "", "") // and it did not happen
	return records
}

// violated is a bank after a violation, with the replies that its clients got loaded.
func violated(t *testing.T, plant violation) *pgx.Conn {
	t.Helper()
	conn := testbed.Schema(t, "transfer")
	testbed.Exec(t, conn, correctAccounts)
	testbed.Exec(t, conn, plant.sql)
	answers := correctReplies()
	if plant.replies != nil {
		plant.replies(answers)
	}
	var records []loadtest.Record
	for _, r := range answers {
		records = append(records, r)
	}
	accounts, clients := opened()
	if err := LoadMoves(t.Context(), conn, accounts, records, clients); err != nil {
		t.Fatal(err)
	}
	return conn
}

// findIn runs one check over a bank, and gives the ids that it found.
func findIn(t *testing.T, check invariant.Check, plant violation) []string {
	t.Helper()
	findings, err := invariant.Run(t.Context(), []invariant.Check{check}, invariant.SQL(violated(t, plant)))
	if err != nil {
		t.Fatal(err)
	}
	return findings[check.Invariant].IDs
}

func TestAuditTransfer_FindsEachPlantedViolation(t *testing.T) {
	for _, check := range slices.Concat(transfer.Invariants.Checks, MoveChecks) {
		planted := slices.DeleteFunc(slices.Clone(violations), func(p violation) bool { return p.check != check.Name })
		if len(planted) == 0 {
			t.Errorf("nothing is planted for %q: it is not known to find anything", check.Name)
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
	for _, check := range slices.Concat(transfer.Invariants.Checks, MoveChecks) {
		if ids := findIn(t, check, violation{}); len(ids) != 0 {
			t.Errorf("%s found %v", check.Name, ids)
		}
	}
}

func TestAuditTransfer_CountsHowFarBalancesAreFromTheirEntries(t *testing.T) {
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
		want["T3"], want["drift"] = 2, 60 // T1 sees nothing: what one has lost the other has
	}
}

// reuses is the first key again, for the second transfer, so long after the first.
func reuses(gap, status string) string {
	return `UPDATE transfers SET idempotency_key = 'k1', created_at = created_at + interval '` + gap + `' WHERE id = '` + transfer2 + `';
		UPDATE idempotency_keys SET created_at = created_at + interval '` + gap + `', status = ` + status + ` WHERE key = 'k1';`
}

// Its answer is purged after a day. What comes under it then is a new request.
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

// A service that raises an opening, or opens an account, has books that agree.
func TestDrift_CountsFromWhatThePlanOpened(t *testing.T) {
	for name, c := range map[string]struct {
		sql  string
		want int64
	}{
		"as it was opened": {``, 0},
		"both raised":      {bothRaised, 100},
		"one account more": {accountBeside, 70},
		"one is gone":      {`DELETE FROM accounts WHERE id = '` + account3 + `'`, 500},
	} {
		if n, err := invariant.Number(t.Context(), violated(t, violation{sql: c.sql}), driftSQL); err != nil || n != c.want {
			t.Errorf("%s: drift %d, %v, want %d", name, n, err, c.want)
		}
	}
}
