// SPDX-License-Identifier: MIT

package redisqueue

import (
	"testing"
	"time"

	"shop/locking/locktest"
)

// lateLeave removes the owners that are late.
const lateLeave = "for _, who in ipairs(late) do remove(i, who:sub(2)) end"

// Each of these variants lacks the named property.
func TestQueue_PropertiesNoticeBrokenQueues(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	const (
		leaves      = "held = held + 1 end\n    remove(i, owner)\n    serve(i)"
		overtakes   = "who and who ~= owner or not"
		whoseTicket = "if not ticket or tonumber(ticket) ~= -tonumber(ARGV[5]) then"
		room        = "redis.call('ZCOUNT', queue[i], '-inf', '(0') < limit"
	)
	type mutation struct{ from, to, property string }
	locktest.Subtests(t, map[string]mutation{
		"a writer beside readers":        {"return who:sub(1, 1) == 's' and ", "return ", "readers share, and exclude writers"},
		"readers beside a writer":        {"and holder:sub(1, 1) == 's' and ", "and ", "readers share, and exclude writers"},
		"readers exclude each other":     {room, "false", "readers share, and exclude writers"},
		"one reader at a time":           {"if owner:sub(1, 1) == 's' then serve(i) end", "", "readers next to each other begin together"},
		"an expiry tells no waiter":      {"if #late > 0 then serve(i) end", "", "the end of a lease wakes the first waiter at the next request"},
		"a permit too many":              {room, "redis.call('ZCOUNT', queue[i], '-inf', '(0') <= limit", "a permit is released once"},
		"all overtake":                   {overtakes, "not", "writers do not overtake a reader"},
		"readers overtake":               {overtakes, "who and who:sub(1, 1) == 's' and who ~= owner or not", "readers do not overtake a writer"},
		"writers overtake":               {overtakes, "who and who:sub(1, 1) == 'x' and who ~= owner or not", "writers do not overtake a reader"},
		"more than n":                    {room, "true", "at most n hold a key"},
		"writers beside all":             {"if not holder or number > 0 then return true end", "if not holder or number > 0 or who:sub(1, 1) == 'x' then return true end", "readers and writers are never together"},
		"a release serves no waiter":     {leaves, "held = held + 1 end\n    remove(i, owner)", "permits are granted in order"},
		"one end for all":                {"if redis.call('PTTL', queue[i]) < milliseconds then redis.call('PEXPIRE', queue[i], 2 * milliseconds) end", "redis.call('PEXPIRE', queue[i], milliseconds)", "each lease has its own end"},
		"an expired permit stays":        {lateLeave, "", "each lease has its own end"},
		"a lost permit is kept":          {whoseTicket + " return 0 end", "", "a permit is released once"},
		"a revived lease":                {whoseTicket, "if not ticket then", "a duplicate after a lease does not revive it"},
		"a duplicate is another owner":   {"if held == keys then", "if false then", "a duplicate within a lease is the same grant"},
		"a ticket for each request":      {"if waits == 0 then", "waits = 0\ndo", "a duplicate of the first request of a waiter keeps its ticket"},
		"a ticket is left behind":        {leaves, "held = held + 1 end\n    if tonumber(ticket) < 0 then remove(i, owner) end\n    serve(i)", "a waiter that leaves delays no other"},
		"tickets end after a time":       {"if ticket_ttl == 0 then return 0 end", "if ticket_ttl == 0 or waits > 0 then return -number end", "a living waiter keeps its ticket"},
		"each request writes":            {"if deadline < now + ticket_ttl * 2 / 3 then", "do", "a request soon after another writes nothing"},
		"a ticket in one of two queues":  {"if held + waits > 0 and waits < keys then", "if false then", "a waiter that was forgotten goes to the end of all queues"},
		"dead waiters stay":              {lateLeave, "for _, who in ipairs(late) do if tonumber(redis.call('ZSCORE', queue[i], who:sub(2))) < 0 then remove(i, who:sub(2)) end end", "dead waiters cost the TTL of a ticket once"},
		"a queue is kept for ever":       {"redis.call('PEXPIRE', queue[i], 2 * milliseconds)", "return", "nothing remains"},
		"a release leaves the deadlines": {"redis.call('ZREM', queue[i], who, '~' .. who)", "redis.call('ZREM', queue[i], who)", "nothing remains"},
	}, func(t *testing.T, m mutation) {
		s := newSteps(t, 3*time.Second, func(q *queue) { edit(t, q, m.from, m.to) })
		if properties[m.property](s); s.err == nil {
			t.Errorf("%q did not notice", m.property)
		} else {
			t.Log(s.err)
		}
	})
}
