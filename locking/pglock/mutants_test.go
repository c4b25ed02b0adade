package pglock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/locking"
	"shop/locking/locktest"
)

// The stores in this file are wrong on purpose: the contract has to refuse them.

// mutant is a wrong variant of a Store, and the checks that must notice it.
type mutant struct {
	sql    string
	edits  []string // of the migration of the locks, and of the statements of one.go
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
		"grants held keys":       {broken: grantsHeldKeys, caught: []string{"Exclusion/GoroutinesShareOneStore", "Exclusion/SeveralStores", own, grows}},
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
		"takes key by key":          {broken: locktest.TakesOneByOne, caught: []string{"Multi/AllOrNone"}},
		"trust from the answer":     {broken: trustsFromTheAnswer, caught: []string{"Until/NeverBeyondRequestPlusTTL"}},
		"trust by the wall clock":   {broken: locktest.TrustsTheWallClock, caught: []string{freed}},
		"ignores ctx":               {broken: locktest.Deaf, caught: []string{"Ctx/EndedBeforehandTakesNothing"}},
		"case ignored":              {broken: renames(strings.ToLower), caught: []string{"Keys/OddOnesNeverCollide"}},
		"spaces trimmed":            {broken: renames(strings.TrimSpace), caught: []string{"Keys/OddOnesNeverCollide"}},
		"any key is valid":          {broken: renames(func(string) string { return "k" }), caught: []string{"Keys/InvalidAreErrKey"}},
		"silence taken for an answer": {
			broken: locktest.Guesses,
			caught: []string{"Reply/NeverComes", "Reply/LostOnRenew", "Reply/LostOnRelease"},
		},
	}
}

// The suite notices each of these mutants, by the check that is meant for it.
func TestContract_NoticesBrokenStores(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	url := locktest.Env(t, "SHOP_POSTGRES_URL")
	var tests []func(*testing.T)
	for name, m := range mutants() {
		broken := target{url: url, sql: m.sql, edits: m.edits, broken: func(s *Store) locking.Store {
			if m.broken == nil {
				return s
			}
			return m.broken(s)
		}}
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
	open := target{url: locktest.Env(t, "SHOP_POSTGRES_URL")}.open
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
		broken func(*SessionStore) locking.Store
		caught []string
	}{
		"grants held keys":                    {func(s *SessionStore) locking.Store { return locktest.GrantsHeldKeys(s, time.Minute) }, []string{"Exclusion/SeveralStores", own}},
		"release does nothing":                {anySession(locktest.ReleasesNothing), []string{"Lost/StaysLost", "Do/PanicFreesTheKeys"}},
		"renew does nothing":                  {anySession(locktest.RenewsBlindly), []string{own, "Lost/StaysLost"}},
		"renew on the connection of the lock": {renewsOnItsConnection, []string{"Reply/LostOnRenew"}},
		"a fence that is none":                {anySession(locktest.NumbersGrants), []string{"Fence/None"}},
		"ignores ctx":                         {anySession(locktest.Deaf), []string{"Ctx/EndedBeforehandTakesNothing"}},
		"spaces trimmed":                      {func(s *SessionStore) locking.Store { return locktest.Renames(s, strings.TrimSpace) }, []string{"Keys/OddOnesNeverCollide"}},
		"silence taken for an answer":         {anySession(locktest.Guesses), []string{"Reply/NeverComes", "Reply/LostOnRelease"}},
	} {
		broken := sessions{url: locktest.Env(t, "SHOP_POSTGRES_URL"), broken: m.broken}
		tests = append(tests, func(t *testing.T) {
			t.Run(name, func(t *testing.T) { locktest.WantFailing(t, broken.open, sessionPromises, m.caught...) })
		})
	}
	locktest.SideBySide(4, tests, func(test func(*testing.T)) { test(t) })
}

// edited returns the migration of the locks, and the statements of one.go, with pairs of text replaced.
func edited(t testing.TB, edits ...string) (migration, take, free string) {
	t.Helper()
	sql, err := Migrations.ReadFile("migrations/00002_locks.sql")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(locktest.Edited(t, string(sql)+"\x00"+takeOne+"\x00"+freeOne, edits...), "\x00")
	return parts[0], parts[1], parts[2]
}

func grantsHeldKeys(s locking.Store) locking.Store { return locktest.GrantsHeldKeys(s, time.Minute) }

func trustsFromTheAnswer(s locking.Store) locking.Store {
	return locktest.TrustsFromTheAnswer(s, s.(*Store).trust)
}

func renames(encode func(string) string) func(locking.Store) locking.Store {
	return func(s locking.Store) locking.Store { return locktest.Renames(s, encode) }
}

func anySession(broken func(locking.Store) locking.Store) func(*SessionStore) locking.Store {
	return func(s *SessionStore) locking.Store { return broken(s) }
}

// renewsOnItsConnection pings the session, which an answer that is lost ends.
func renewsOnItsConnection(s *SessionStore) locking.Store {
	return locktest.Twisted{Store: s, Keep: func(ctx context.Context, l locking.Lease) (locking.Lease, error) {
		x, held := s.sessions.Get(l)
		if !held {
			return l, locking.ErrLost
		}
		limited, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		_, err := x.conn.Exec(limited, `SELECT 'advisory'`, pgx.QueryExecModeExec)
		return l, classify(ctx, err)
	}}
}
