// SPDX-License-Identifier: MIT

package mysqllock

import (
	"context"
	"strings"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
	"shop/locking/locktest/faulty"
	"shop/locking/servertest"
)

// The stores in this file are wrong on purpose: the contract has to refuse them.

// mutant is a wrong variant of a Store, and the checks that must notice it.
type mutant struct {
	edits  []string
	broken func(locking.Store) locking.Store
	caught []string
}

const own, grows, freed = "Own/ReleaseAndRenewTouchOnlyTheirOwn", "Fence/GrowsOverGrants", "Expires/FreesTheKeysAfterUntil"

func mutants() map[string]mutant {
	const (
		clock   = "GREATEST(granted, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))"
		fence   = "IF(again, seen, " + clock + ")"
		next    = "GREATEST(fence + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))"
		as      = "),\n\t\t    owner = x'%[2]x'" // of one free key
		free    = "WHERE name = k AND owner = who AND expires"
		free1   = "AND owner = x'%[2]x' AND fence = %[3]d AND" // of one held key
		mine    = "INTO held FROM locks\n        WHERE name = k AND owner = who AND fence = granted AND expires > UTC_TIMESTAMP(6)"
		renewal = "UPDATE locks SET expires = UTC_TIMESTAMP(6) + INTERVAL ttl MICROSECOND WHERE name = k;"
		wait    = "SELECT COUNT(*) INTO held FROM locks WHERE name = k FOR UPDATE;"
		refusal = "IF held = 0 THEN\n            ROLLBACK;"
	)
	edit := func(edits ...string) []string { return edits }
	return map[string]mutant{
		"grants held keys":       {broken: grantsHeldKeys, caught: []string{"Exclusion/SeveralStores", own, grows}},
		"releases others' locks": {edits: edit(free, "WHERE name = k AND expires", free1, "AND"), caught: []string{own}},
		"release does nothing":   {edits: edit(free, "WHERE FALSE AND expires", free1, "AND FALSE AND"), caught: []string{"Lost/StaysLost", "Do/PanicFreesTheKeys", "Multi/AllOrNone"}},
		"release resets the fence": {
			edits:  edit("LAST_INSERT_ID(fence), owner = ''", "0, owner = ''", "SET owner = '',", "SET fence = 0, owner = '',", clock, "granted", next+as, "fence + 1"+as),
			caught: []string{grows},
		},
		"fence that never grows":    {edits: edit(fence, "1", next+as, "1"+as), caught: []string{grows}},
		"fence above that of a key": {edits: edit("granted = GREATEST(granted, seen + 1)", "granted = seen + 1", clock, "granted"), caught: []string{"Multi/FenceAboveThoseOfEachKey"}},
		"table in memory":           {edits: edit("ENGINE = InnoDB", "ENGINE = MEMORY"), caught: []string{"Fence/SurvivesRestart"}},
		"renews others' locks":      {edits: edit(mine, strings.Replace(mine, "owner = who AND ", "", 1)), caught: []string{own}},
		"renews expired leases":     {edits: edit(mine, strings.Replace(mine, " AND expires > UTC_TIMESTAMP(6)", "", 1)), caught: []string{"Lost/StaysLost"}},
		"renew, then compare":       {edits: edit(wait, renewal, refusal, strings.Replace(refusal, "ROLLBACK", "COMMIT", 1)), caught: []string{"Own/RefusedRenewProlongsNothing"}},
		"renew does nothing":        {edits: edit(renewal, ""), caught: []string{"Renew/KeepsTheKeysPastTheTTL"}},
		"no TTL": {edits: edit("fence = granted, expires = UTC_TIMESTAMP(6) + INTERVAL ttl MICROSECOND", "fence = granted, expires = '9999-12-31'",
			"UTC_TIMESTAMP(6) + INTERVAL %[3]d MICROSECOND", "'9999-12-31'"), caught: []string{freed}},
		"own request forgotten":  {edits: edit("AND owner <> who AND expires", "AND expires"), caught: []string{"Reply/LostOnAcquire"}},
		"names with a collation": {edits: edit("name    VARBINARY(512)", "name    VARCHAR(512)"), caught: []string{"Keys/OddOnesNeverCollide"}},
		"takes key by key":       {broken: faulty.TakesOneByOne, caught: []string{"Multi/AllOrNone"}},
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
	dsn := servertest.Env(t, env)
	var tests []func(*testing.T)
	for name, m := range mutants() {
		broken := target{dsn: dsn, edits: m.edits, broken: m.broken}
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
	open := target{dsn: servertest.Env(t, env)}.open
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
		"case ignored":                        {renames(strings.ToLower), nil, []string{"Keys/OddOnesNeverCollide"}},
		"cut at 64 characters":                {renames(cut), nil, []string{"Keys/OddOnesNeverCollide"}},
		"silence taken for an answer":         {faulty.Guesses, nil, []string{"Reply/NeverComes", "Reply/LostOnRelease"}},
	} {
		broken := sessions{m.broken, m.keep}
		tests = append(tests, func(t *testing.T) {
			t.Run(name, func(t *testing.T) { locktest.WantFailing(t, broken.open, sessionPromises, m.caught...) })
		})
	}
	locktest.SideBySide(4, tests, func(test func(*testing.T)) { test(t) })
}

func grantsHeldKeys(s locking.Store) locking.Store { return faulty.GrantsHeldKeys(s, time.Minute) }

func renames(encode func(string) string) func(locking.Store) locking.Store {
	return func(s locking.Store) locking.Store { return faulty.Renames(s, encode) }
}

func cut(key string) string { return key[:min(len(key), 64)] }

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

// renewsOnItsConnection asks the session itself, which an answer that is lost ends.
func renewsOnItsConnection(ctx context.Context, x *session) error {
	_, err := ask(ctx, answerTimeout, x.conn, `SELECT IS_USED_LOCK('%s') > 0`, x.lock)
	return err
}
