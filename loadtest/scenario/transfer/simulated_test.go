// SPDX-License-Identifier: MIT

package transfer

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/loadtest/linear"
	"shop/loadtest/scenario/money"
)

// simulation is a service that executes operations in sequence, a millisecond apart, and whose
// calls and answers are delayed.
type simulation struct {
	*rand.Rand
	ids     []uuid.UUID
	balance []int64
	held    []int64
	holds   []simulatedHold
	now     int64
	wait    time.Duration // longest time from a call to the effect, and from there to the return
	placed  bool          // the database shows the order of the writes
	ops     []linear.Operation
}

type simulatedHold struct {
	id       string
	from, to int
	amount   int64
	over     int64
	state    string
}

func (s *simulation) add(o linear.Operation, outcome, problem, answer string, effect bool) {
	o.Call, o.Return = max(0, s.now-s.Int64N(int64(s.wait))), s.now+s.Int64N(int64(s.wait))
	o.Outcome, o.Problem, o.Answer = outcome, problem, []byte(answer)
	if effect && s.placed {
		o.Order = s.now
	}
	s.ops = append(s.ops, o)
}

// step executes a random operation.
func (s *simulation) step(n int) {
	s.now += int64(time.Millisecond)
	s.sweep()
	from := s.IntN(len(s.ids))
	to := s.IntN(2) // a hot account
	if from < 2 && from == to {
		to = 2 + s.IntN(len(s.ids)-2)
	} else if from < 2 {
		to = 1 - from
	}
	switch kind := s.IntN(10); {
	case kind < 4:
		s.move(fmt.Sprintf("t%d", n), from, to, 1+s.Int64N(100), "")
	case kind < 5:
		s.move(fmt.Sprintf("t%d", n), from, to, 1+s.Int64N(100), fmt.Sprintf("%dms", 200+s.IntN(100)))
	case kind < 6 && len(s.holds) > 0:
		s.settle(n)
	default:
		s.add(holds(s.ids[from], 0, 0, s.balance[from], s.held[from]), linear.OK, "", fmt.Sprintf(`{"balance":%d,"held":%d,"available":%d}`, s.balance[from], s.held[from], s.balance[from]-s.held[from]), false)
	}
}

func (s *simulation) move(id string, from, to int, amount int64, lasts string) {
	o := pays(id, 0, 0, amount, lasts)
	o.Body, _ = json.Marshal(map[string]any{"from": s.ids[from], "to": s.ids[to], "amount": amount, "currency": "EUR", "expires_in": lasts})
	switch available := s.balance[from] - s.held[from]; {
	case available < amount:
		s.add(o, linear.Rejected, money.Short, fmt.Sprintf(`{"available":%d}`, available), false)
		return
	case lasts != "":
		s.held[from] += amount
		d, _ := time.ParseDuration(lasts)
		s.holds = append(s.holds, simulatedHold{id, from, to, amount, s.now + int64(d), "reserved"})
	default:
		s.balance[from] -= amount
		s.balance[to] += amount
	}
	s.add(o, linear.OK, "", `{"id":"`+id+`"}`, true)
}

func (s *simulation) settle(n int) {
	h := &s.holds[s.IntN(len(s.holds))]
	action := []string{"post", "void"}[s.IntN(2)]
	o := ending(action, h.id, 0, 0, "")
	o.Key = fmt.Sprintf("%s-%d", o.Key, n)
	switch {
	case h.state == "expired":
		s.add(o, linear.Rejected, "expired", `{}`, false)
	case h.state != "reserved":
		s.add(o, linear.Rejected, "already-settled", `{}`, false)
	default:
		s.held[h.from] -= h.amount
		if h.state = "voided"; action == "post" {
			h.state = "posted"
			s.balance[h.from] -= h.amount
			s.balance[h.to] += h.amount
		}
		s.add(o, linear.OK, "", `{}`, true)
	}
}

// sweep ends the expired holds.
func (s *simulation) sweep() {
	for i := range s.holds {
		if h := &s.holds[i]; h.state == "reserved" && h.over < s.now-int64(time.Millisecond) {
			h.state = "expired"
			s.held[h.from] -= h.amount
			s.ops = append(s.ops, expires(h.id, s.now-1))
		}
	}
}

// simulate returns the history of n operations on a group of accounts.
func simulate(t *testing.T, seed uint64, accounts, n int, wait time.Duration, placed bool) linear.History {
	t.Helper()
	s := &simulation{Rand: rand.New(rand.NewPCG(seed, 0)), wait: wait, placed: placed, now: int64(10 * wait)}
	var given []money.Account
	for range accounts {
		id := uuid.UUID{15: byte(len(given)), 0: 1}
		given = append(given, money.Account{ID: id, Opening: 100})
		s.ids, s.balance, s.held = append(s.ids, id), append(s.balance, 100), append(s.held, 0)
	}
	for i := range n {
		s.step(i)
	}
	text, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	return linear.History{Header: linear.Header{Given: text, Audited: true}, Operations: s.ops}
}

func verdictOf(t *testing.T, h linear.History) linear.Result {
	t.Helper()
	partitions, err := linearize(h)
	if err != nil {
		t.Fatal(err)
	}
	return linear.Check(t.Context(), partitions, linear.Limits{})
}

func TestLinearize_ACorrectServiceIsNeverAccused(t *testing.T) {
	for seed := range uint64(5) {
		for _, c := range []struct {
			accounts, n int
			wait        time.Duration
			placed      bool
		}{
			{16, 1000, 50 * time.Millisecond, true},
			{16, 1000, time.Second, true}, // all at once, as after an outage of a store
			{16, 500, 5 * time.Millisecond, false},
		} {
			h := simulate(t, seed, c.accounts, c.n, c.wait, c.placed)
			r := verdictOf(t, h)
			t.Logf("%+v: %d operations in %v", c, r.Operations, r.Took)
			if r.Legal != r.Partitions || r.Operations < c.n {
				t.Errorf("seed %d, %+v: %+v", seed, c, r)
			}
		}
	}
}

func TestLinearize_AWrongAnswerIsFound(t *testing.T) {
	for seed := range uint64(5) {
		h := simulate(t, seed, 16, 600, 20*time.Millisecond, true)
		for i := len(h.Operations) / 2; ; i++ { // a read that shows one more
			if o := &h.Operations[i]; o.Reads {
				var shown map[string]int64
				o.ReadAnswer(&shown)
				o.Answer = fmt.Appendf(nil, `{"balance":%d,"held":%d,"available":%d}`, shown["balance"]+1, shown["held"], shown["available"]+1)
				break
			}
		}
		r := verdictOf(t, h)
		t.Logf("%d operations in %v", r.Operations, r.Took)
		if r.Illegal != 1 || r.Undecided != 0 {
			t.Errorf("seed %d: %+v", seed, r)
		}
	}
}
