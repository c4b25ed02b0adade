// SPDX-License-Identifier: MIT

package pglock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
	"shop/locking/locktest/faulty"
	"shop/locking/servertest"
)

// The stores in this file are wrong on purpose: the contract has to refuse them.

// mutant is a wrong variant of a Store, and the checks that must notice it.
type mutant struct {
	sql    string
	edits  []string // of the migration of the locks, and of the statements of one free key
	broken func(locking.Store) locking.Store
	caught []string
}

const own, grows, freed = "Own/ReleaseAndRenewTouchOnlyTheirOwn", "Fence/GrowsOverGrants", "Expires/FreesTheKeysAfterUntil"

func mutants() map[string]mutant {
	next, free := "granted, nextval('locks_fence')", "owner = '', expires = '-infinity', awaited = false\n    WHERE key = ANY (keys) AND owner = who"
	nextOfOne, freeOne := "SET owner = $2, fence = nextval('locks_fence')", "SET owner = '', expires = '-infinity'\n\t\tWHERE key = $1 AND owner = $2"
	nextOfWaiter := "SET owner = who, fence = nextval('locks_fence')"
	renewal := "UPDATE locks SET expires = clock_timestamp() + ttl WHERE key = ANY (keys);"
	edit := func(edits ...string) []string { return edits }
	return map[string]mutant{
		"grants held keys":       {broken: grantsHeldKeys, caught: []string{"Exclusion/SeveralStores", own, grows}},
		"releases others' locks": {edits: edit(free, strings.TrimSuffix(free, " AND owner = who"), freeOne, strings.TrimSuffix(freeOne, " AND owner = $2")+" AND $2 <> ''"), caught: []string{own}},
		"release does nothing":   {edits: edit(free, free+" AND false", freeOne, freeOne+" AND false"), caught: []string{"Lost/StaysLost", "Do/PanicFreesTheKeys", "Multi/AllOrNone"}},
		"release resets the fence": {
			edits: edit(free, "fence = 0, "+free, freeOne, strings.Replace(freeOne, "SET", "SET fence = 0,", 1),
				next, "granted, (SELECT max(fence) + 1 FROM locks WHERE key = ANY (keys))", nextOfOne, "SET owner = $2, fence = fence + 1", nextOfWaiter, "SET owner = who, fence = fence + 1"),
			caught: []string{grows},
		},
		"fence that never grows":    {edits: edit(next, "granted, 1", nextOfOne, "SET owner = $2, fence = 1", nextOfWaiter, "SET owner = who, fence = 1"), caught: []string{grows}},
		"fence above that of a key": {edits: edit(next, "granted, (SELECT min(fence) + 1 FROM locks WHERE key = ANY (keys))"), caught: []string{"Multi/FenceAboveThoseOfEachKey"}},
		"table without a log":       {sql: "ALTER TABLE locks SET UNLOGGED", caught: []string{"Fence/SurvivesRestart"}},
		"renews others' locks":      {edits: edit("AND owner = who AND fence = granted AND", "AND fence = granted AND"), caught: []string{own}},
		"renews expired leases":     {edits: edit("AND fence = granted AND expires > clock_timestamp()", "AND fence = granted"), caught: []string{"Lost/StaysLost"}},
		"renew, then compare":       {edits: edit("    PERFORM FROM locks\n", renewal+"\n    PERFORM FROM locks\n"), caught: []string{"Own/RefusedRenewProlongsNothing"}},
		"renew does nothing":        {edits: edit(renewal, ""), caught: []string{"Renew/KeepsTheKeysPastTheTTL"}},
		"no TTL":                    {edits: edit("fence = granted, expires = clock_timestamp() + ttl", "fence = granted, expires = 'infinity'", nextOfOne+", expires = clock_timestamp() + $3::interval", nextOfOne+", expires = 'infinity'::timestamptz + 0 * $3::interval", nextOfWaiter+", expires = clock_timestamp() + ttl", nextOfWaiter+", expires = 'infinity'"), caught: []string{freed}},
		"own request forgotten":     {edits: edit("owner <> who AND expires > clock_timestamp() AND (", "expires > clock_timestamp() AND ("), caught: []string{"Reply/LostOnAcquire"}},
		"takes key by key":          {broken: faulty.TakesOneByOne, caught: []string{"Multi/AllOrNone"}},
		"silence taken for an answer": {
			broken: faulty.Guesses,
			caught: []string{"Reply/NeverComes", "Reply/LostOnRenew", "Reply/LostOnRelease"},
		},
	}
}

// The suite notices each of these mutants, by the check that is meant for it.
func TestContract_NoticesBrokenStores(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	url := servertest.Env(t, "SHOP_POSTGRES_URL")
	var tests []func(*testing.T)
	for name, m := range mutants() {
		broken := target{url: url, sql: m.sql, edits: m.edits, broken: m.broken}
		tests = append(tests, func(t *testing.T) {
			t.Run(name, func(t *testing.T) { locktest.WantFailing(t, broken.open, promises, m.caught...) })
		})
	}
	locktest.SideBySide(4, tests, func(test func(*testing.T)) { test(t) })
}

// A Store must keep the promises that it makes, and must not keep one that it does not make.
func TestContract_NoticesWrongPromises(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	open := target{url: servertest.Env(t, "SHOP_POSTGRES_URL")}.open
	without := func(change func(*locktest.Promises)) locktest.Promises {
		p := promises
		change(&p)
		return p
	}
	locktest.WantFailing(t, open, without(func(p *locktest.Promises) { p.Expires = false }), "Expires/Not")
	locktest.WantFailing(t, open, without(func(p *locktest.Promises) { p.Fences, p.FencePersists = false, false }), "Fence/None")
	locktest.WantFailing(t, open, without(func(p *locktest.Promises) { p.MultiKey = false }), "Multi/Refused")
	locktest.WantFailing(t, open, without(func(p *locktest.Promises) { p.MinTTL /= 2 }), "TTL/UnrepresentableIsAnError")
}

func TestSessionContract_NoticesBrokenStores(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	var tests []func(*testing.T)
	for name, m := range map[string]struct {
		broken func(locking.Store) locking.Store
		keep   func(context.Context, *session) error
		caught []string
	}{
		"grants held keys":                    {grantsHeldKeys, nil, []string{"Exclusion/SeveralStores", own}},
		"release does nothing":                {faulty.ReleasesNothing, nil, []string{"Lost/StaysLost", "Do/PanicFreesTheKeys"}},
		"renew does nothing":                  {faulty.RenewsBlindly, nil, []string{own, "Lost/StaysLost"}},
		"renew on the connection of the lock": {nil, renewsOnItsConnection, []string{"Reply/LostOnRenew"}},
		"a fence that is none":                {faulty.NumbersGrants, nil, []string{"Fence/None"}},
		"ignores ctx":                         {faulty.Deaf, nil, []string{"Ctx/EndedBeforehandTakesNothing"}},
		"spaces trimmed":                      {renames(strings.TrimSpace), nil, []string{"Keys/OddOnesNeverCollide"}},
		"silence taken for an answer":         {faulty.Guesses, nil, []string{"Reply/NeverComes", "Reply/LostOnRelease"}},
	} {
		broken := sessions{servertest.Env(t, "SHOP_POSTGRES_URL"), m.broken, m.keep}
		tests = append(tests, func(t *testing.T) {
			t.Run(name, func(t *testing.T) { locktest.WantFailing(t, broken.open, sessionPromises, m.caught...) })
		})
	}
	locktest.SideBySide(4, tests, func(test func(*testing.T)) { test(t) })
}

// edited returns the migration of the locks, and the statements of one free key, with pairs of text replaced.
func edited(t testing.TB, edits ...string) (migration, take, free string) {
	t.Helper()
	sql, err := Migrations.ReadFile("migrations/00002_locks.sql")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(faulty.Edited(t, string(sql)+"\x00"+takeOne+"\x00"+freeOne, edits...), "\x00")
	return parts[0], parts[1], parts[2]
}

func grantsHeldKeys(s locking.Store) locking.Store { return faulty.GrantsHeldKeys(s, time.Minute) }

func renames(encode func(string) string) func(locking.Store) locking.Store {
	return func(s locking.Store) locking.Store { return faulty.Renames(s, encode) }
}

// keeping is a driver with another Keep.
type keeping struct {
	*driver.Sessions[*session]
	keep func(context.Context, *session) error
}

func (d keeping) Keep(ctx context.Context, l locking.Lease) error {
	x, held := d.Of(l)
	if !held {
		return locking.ErrLost
	}
	return d.keep(ctx, x)
}

// renewsOnItsConnection pings the session, which an answer that is lost ends.
func renewsOnItsConnection(ctx context.Context, x *session) error {
	_, err := x.conn.Exec(ctx, `SELECT 'advisory'`, pgx.QueryExecModeExec)
	return classify(err)
}
