// SPDX-License-Identifier: MIT

package linear

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shelf is the model of these tests: units of one product.
type shelf int64

func (s shelf) Equal(t State) bool { return s == t }
func (s shelf) String() string     { return fmt.Sprintf("%d left", int64(s)) }

// at is an operation from call to end (0: none).
func at(call, end int64, outcome string) *Operation {
	return &Operation{Key: "k", Call: call, Return: end, Outcome: outcome}
}

// take takes n units; refused is a take that finds fewer than n; shows reads the stock.
func take(o *Operation, n int64) Step {
	step := NewStep(o, fmt.Sprintf("take %d", n)).Does(func(s State) (State, bool) { return s.(shelf) - shelf(n), s.(shelf) >= shelf(n) })
	step.Adds = -n
	return step
}

func refused(o *Operation, n int64) Step {
	return NewStep(o, fmt.Sprintf("%d refused", n)).Checks(func(s State) bool { return s.(shelf) < shelf(n) })
}

func shows(call, end, n int64) Step {
	step := NewStep(at(call, end, OK), fmt.Sprintf("%d there", n)).Checks(func(s State) bool { return s == shelf(n) })
	step.Shows = &n
	return step
}

func of(start int64, steps ...Step) Partition {
	return Partition{Object: "cup", Start: shelf(start), Steps: steps, Amount: func(s State) int64 { return int64(s.(shelf)) }}
}

// verdict returns the verdict of a check of one partition.
func verdict(t *testing.T, p Partition) Verdict {
	t.Helper()
	r := Check(t.Context(), []Partition{p}, Limits{})
	if len(r.Failures) == 0 {
		return Legal
	}
	return r.Failures[0].Verdict
}

func TestCheck_OperationsTakeEffectBetweenCallAndReturn(t *testing.T) {
	for _, c := range []struct {
		name string
		p    Partition
		want Verdict
	}{
		{"nothing", of(1), Legal},
		{"one after the other", of(2, take(at(1, 2, OK), 1), take(at(3, 4, OK), 1), shows(5, 6, 0)), Legal},
		{"sold twice", of(1, take(at(1, 5, OK), 1), take(at(2, 6, OK), 1)), Illegal},
		{"a read beside a write sees it or not", of(1, take(at(1, 5, OK), 1), shows(2, 3, 1), shows(2, 6, 0)), Legal},
		{"a stale read", of(1, take(at(1, 2, OK), 1), shows(3, 4, 1)), Illegal},
		{"back in time", of(1, take(at(1, 9, OK), 1), shows(2, 3, 0), shows(4, 5, 1)), Illegal},
		{"bounds meet", of(1, take(at(1, 3, OK), 1), shows(3, 4, 1)), Legal},
		{"refused although there was enough", of(2, take(at(1, 2, OK), 1), refused(at(3, 4, Rejected), 1)), Illegal},
		{"refused rightly", of(1, take(at(1, 9, OK), 1), refused(at(3, 4, Rejected), 1)), Legal},
		{"an unknown that happened", of(1, take(at(1, 0, "unknown"), 1), shows(5, 6, 1), shows(7, 8, 0)), Legal},
		{"an unknown that did not", of(1, take(at(1, 0, "unknown"), 1), shows(7, 8, 1)), Legal},
		{"an unknown that could not", of(1, take(at(1, 0, "unknown"), 2), shows(7, 8, 1)), Legal},
		{"an unknown before it was called", of(1, take(at(5, 0, "unknown"), 1), shows(1, 2, 0)), Illegal},
		{"an answer that cannot be", of(1, NewStep(at(1, 2, OK), "").Never()), Illegal},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := verdict(t, c.p); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// drawn is a random history, mostly legal: each operation takes effect at a moment of its
// interval. A liar answers some reads with another number.
func drawn(random *rand.Rand, n int, liar bool) Partition {
	const start = 20
	left, p := int64(start), of(start)
	for i := range int64(n) {
		call, end := 10*i-random.Int64N(40)+40, 10*i+random.Int64N(40)+40
		switch q := 1 + random.Int64N(3); {
		case random.IntN(2) == 0 && liar && random.IntN(4) == 0:
			p.Steps = append(p.Steps, shows(call, end, left+1-random.Int64N(3)))
		case random.IntN(2) == 0:
			p.Steps = append(p.Steps, shows(call, end, left))
		case left < q:
			p.Steps = append(p.Steps, refused(at(call, end, Rejected), q))
		default:
			left -= q
			s := take(at(call, end, OK), q)
			s.Order = i + 1
			p.Steps = append(p.Steps, s)
		}
	}
	return p
}

func TestOrder_AgreesWithPorcupineWhateverTheDatabaseSays(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	found := map[Verdict]int{}
	for range 400 {
		p := drawn(random, 12, true)
		want := p.porcupine(t.Context())
		found[want]++
		if got, _ := p.order(t.Context()); got != want {
			t.Fatalf("%s, and porcupine says %s", got, want)
		}
		for i := range p.Steps { // with a random order of the writes
			if p.Steps[i].Order != 0 {
				p.Steps[i].Order = random.Int64N(6)
			}
		}
		if got, _ := p.order(t.Context()); got != want {
			t.Fatalf("%s with places that mean nothing, want %s", got, want)
		}
	}
	if found[Legal] < 50 || found[Illegal] < 50 {
		t.Errorf("%v: one of them was not tried", found)
	}
}

func TestOrder_TheOrderOfTheDatabaseDecidesALongHistory(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		p := drawn(random, 2000, false)
		s := newSearch(p)
		if !s.from(p.Start) || len(s.seen) > 2000 {
			t.Fatalf("%d states for 2000 operations: it tried other orders", len(s.seen))
		}
	}
}

func TestOrder_AFewWritesOfOneMomentMayBeInAnyOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		p := drawn(random, 2000, false)
		for i := range p.Steps {
			p.Steps[i].Order = (p.Steps[i].Order + 2) / 3 // of three, each may be the first
		}
		if got, _ := p.order(t.Context()); got != Legal {
			t.Fatal(got)
		}
	}
}

// Many writes begin at once, and end one after the other. Reads show the amount after each; the database says nothing true.
func TestOrder_OfManyWritesAtOnceIsFoundByTheirReturns(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	const writes, apart = 32, int64(2 * time.Millisecond)
	for range 3 {
		left := int64(3 * writes)
		p := of(left)
		for i, order := range random.Perm(writes) {
			q, end := 1+random.Int64N(3), int64(i+1)*apart
			left -= q
			s := take(at(1, end+random.Int64N(apart), OK), q)
			s.Order = int64(order + 1)
			p.Steps = append(p.Steps, s, shows(end, end+2*apart, left))
		}
		if got, _ := p.order(t.Context()); got != Legal {
			t.Error(got)
		}
	}
}

// A write that lasts as long as thousands of others must not make each position look at all of their reads.
func TestOrder_BesideOneLongWriteIsFound(t *testing.T) {
	const writes = 3000
	p := of(writes+1, take(at(1, 10*writes+10, OK), 1))
	for i := range int64(writes) {
		s := take(at(10*i+2, 10*i+3, OK), 1)
		s.Order = i + 1
		p.Steps = append(p.Steps, s, shows(10*i+4, 10*i+5, writes-i))
	}
	looks, amount := 0, p.Amount
	p.Amount = func(s State) int64 {
		looks++
		return amount(s)
	}
	if got, _ := p.order(t.Context()); got != Legal || looks == 0 || looks > 2*lookAhead*writes {
		t.Errorf("%s after %d looks at a read, for %d writes", got, looks, writes)
	}
}

// Sums of amounts may be beyond an int64.
func TestOrder_OfHugeAmountsIsFound(t *testing.T) {
	huge := func() Step { return take(at(1, 0, "unknown"), math.MaxInt64) }
	if got, _ := of(10, huge(), huge(), take(at(2, 3, OK), 1), shows(4, 5, 9)).order(t.Context()); got != Legal {
		t.Error(got)
	}
}

func TestVerify_RejectsAWrongOrder(t *testing.T) {
	p := of(2, take(at(1, 2, OK), 1), take(at(3, 4, OK), 1), shows(5, 6, 0))
	for _, c := range []struct {
		order []int
		want  bool
	}{
		{[]int{0, 1, 2}, true},
		{[]int{1, 0, 2}, false},    // against the time
		{[]int{0, 1}, false},       // one is left out
		{[]int{0, 1, 1}, false},    // one is there twice
		{[]int{0, 2, 1}, false},    // another answer
		{[]int{0, 1, 2, 2}, false}, // one too many
	} {
		if got := p.verify(c.order); got != c.want {
			t.Errorf("%v: %v", c.order, got)
		}
	}
}

func TestCheck_AnIllegalPartIsWhatFailed(t *testing.T) {
	whole := of(1, take(at(1, 2, OK), 1), shows(3, 4, 1), shows(5, 6, 0))
	part := of(1, take(at(1, 2, OK), 1), shows(3, 4, 1))
	part.Object = "one account"
	whole.Parts = []Partition{of(1), part}
	r := Check(t.Context(), []Partition{whole, of(1)}, Limits{})
	if r.Operations != 3 || r.Partitions != 2 || r.Legal != 1 || r.Illegal != 1 || r.Failures[0].Object != "one account" || r.Failures[0].Whole != 3 {
		t.Errorf("%+v", r)
	}
}

// two is the state of two shelves.
type two [2]int64

func (s two) Equal(t State) bool { return s == t }
func (s two) String() string     { return "" }

// The place of a write among those of other objects is irrelevant: the write may be seen after a
// write that the database places after it.
func TestCheck_OrdersOfThePartsComposeToOneOfTheWhole(t *testing.T) {
	slow, quick, look := at(1, 100, OK), at(2, 10, OK), at(20, 30, OK)
	slow.Order, quick.Order, look.Reads = 1, 2, true
	view := func(shelves ...int) Partition {
		p := Partition{Object: "two shelves", Start: two{5, 5}}
		sells := func(o *Operation, shelf int) {
			p.Steps = append(p.Steps, NewStep(o, "sell").Does(func(s State) (State, bool) {
				left := s.(two)
				left[shelf]--
				return left, left[shelf] >= 0
			}))
		}
		for _, shelf := range shelves {
			if shelf == 1 {
				sells(quick, 1)
				continue
			}
			sells(slow, 0)
			p.Steps = append(p.Steps, NewStep(look, "5 there").Checks(func(s State) bool { return s.(two)[0] == 5 }))
		}
		return p
	}
	whole := view(0, 1)
	whole.Parts = []Partition{view(0), view(1)}
	orders := make([][]int, 2)
	for i, part := range whole.Parts {
		_, orders[i] = part.order(t.Context())
	}
	if !whole.verify(whole.compose(orders)) || verdict(t, whole) != Legal {
		t.Errorf("%v of %v", whole.compose(orders), orders)
	}
}

// shelves is the model of several products, of which units are moved.
type shelves [4]int64

func (s shelves) Equal(t State) bool { return s == t }
func (s shelves) String() string     { return fmt.Sprint([4]int64(s)) }

// moves is a history of a service that locks two shelves, moves a unit, and commits slowly:
// the database's order is that of the locks, and reads show what is committed.
func moves(random *rand.Rand, n int, liar bool) Partition {
	const start = 1000
	type write struct {
		o         *Operation
		from, to  int
		committed int64
	}
	var writes []write
	var free shelves
	reads := map[*Operation]int{}
	var all []*Operation
	for i := range int64(n) {
		from := random.IntN(len(free))
		to := (from + 1 + random.IntN(len(free)-1)) % len(free)
		call := 10 * i
		locked := max(call, free[from], free[to]) + random.Int64N(5)
		w := write{at(call, 0, OK), from, to, locked + random.Int64N(40)}
		w.o.Order, w.o.Return = locked+1, w.committed+random.Int64N(40)+1
		free[from], free[to] = w.committed, w.committed
		writes = append(writes, w)
		read := at(call, call+random.Int64N(40)+1, OK)
		read.Reads, reads[read] = true, random.IntN(len(free))
		all = append(all, w.o, read)
	}
	shown := func(at int64, shelf int) (left int64) {
		left = start
		for _, w := range writes {
			if w.committed <= at && w.from == shelf {
				left--
			}
			if w.committed <= at && w.to == shelf {
				left++
			}
		}
		return left
	}
	view := func(has func(int) bool) Partition {
		p := Partition{Object: "shelves", Start: shelves{start, start, start, start}}
		for _, w := range writes {
			if has(w.from) || has(w.to) {
				p.Steps = append(p.Steps, NewStep(w.o, "move").Does(func(s State) (State, bool) {
					left := s.(shelves)
					left[w.from]--
					left[w.to]++
					return left, true
				}))
			}
		}
		for _, o := range all {
			if shelf := reads[o]; o.Reads && has(shelf) {
				left := shown((o.Call+o.Return)/2, shelf)
				if liar && o == all[len(all)-1] {
					left += 500
				}
				p.Steps = append(p.Steps, NewStep(o, "read").Checks(func(s State) bool { return s.(shelves)[shelf] == left }))
			}
		}
		return p
	}
	whole := view(func(int) bool { return true })
	for shelf := range free {
		whole.Parts = append(whole.Parts, view(func(i int) bool { return i == shelf }))
	}
	return whole
}

func TestCheck_CommitsThatTakeLongAreDecidedWithoutASearch(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	composed := func(p Partition) []int {
		orders := make([][]int, len(p.Parts))
		for i, part := range p.Parts {
			_, orders[i] = part.order(t.Context())
		}
		return p.compose(orders)
	}
	searched := 0
	for range 5 {
		p := moves(random, 300, false)
		if order := composed(p); !p.verify(order) {
			t.Fatalf("%d of %d steps composed", len(order), len(p.Steps))
		}
		bounded, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if verdict, _ := p.order(bounded); verdict != Legal {
			searched++ // the order of the whole alone does not suffice
		}
		stop()
	}
	lie := moves(random, 6, true) // few, since the search of the parts is exhaustive
	if order := composed(lie); lie.verify(order) || verdict(t, lie) != Illegal {
		t.Errorf("a read that shows what never was is legal: %v", order)
	}
	if searched == 0 {
		t.Error("the order of the database alone decided all of them: nothing was composed that had to be")
	}
}

func TestCut_LeavesTheShortestIllegalPrefix(t *testing.T) {
	p := of(100)
	for i := range int64(50) {
		p.Steps = append(p.Steps, take(at(10*i+1, 10*i+3, OK), 1), shows(10*i+5, 10*i+6, 99-i))
	}
	p.Steps[41].Next = func(s State) (State, bool) { return s, s == shelf(7) } // the read from 205 to 206
	p.Steps = append(p.Steps, take(at(150, 0, "unknown"), 1))
	f := Check(t.Context(), []Partition{p}, Limits{}).Failures[0]
	if f.Verdict != Illegal || f.Whole != 101 {
		t.Fatalf("%+v", f)
	}
	var reads int
	for _, s := range f.Steps {
		if s.Reads {
			reads++
		}
		if s.Return != Forever && s.Return > 206 {
			t.Errorf("%s returns at %d, behind the one that fails", s.Text, s.Return)
		}
	}
	if reads != 1 || len(f.Steps) != 1+21+1 {
		t.Errorf("%d reads and %d steps are left, want 1 and 23", reads, len(f.Steps))
	}
	if !strings.Contains(f.Sentence(), "cup") || !strings.Contains(f.Sentence(), "79 there") {
		t.Error(f.Sentence())
	}
	var page bytes.Buffer
	if err := f.Draw(t.Context(), &page); err != nil || !strings.Contains(page.String(), "79 there") || !f.Drawable() {
		t.Errorf("%v: no drawing of it", err)
	}
}

// hard is a partition whose search takes longer than any limit: of forty amounts at once, no
// choice adds up to what was read.
func hard() Partition {
	p := of(1 << 50)
	p.Amount = nil
	for i := range int64(40) {
		p.Steps = append(p.Steps, take(at(1, 100, OK), 2<<i))
	}
	p.Steps = append(p.Steps, shows(2, 3, 1))
	return p
}

func TestCheck_BeyondALimitIsUndecided(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits Limits
		why    error
	}{
		{"of time", Limits{Time: 500 * time.Millisecond}, ErrTime},
		{"of memory", Limits{Heap: 1}, ErrHeap},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Check(t.Context(), []Partition{hard(), of(1)}, c.limits)
			if r.Undecided != 1 || r.Legal != 1 || r.Failures[0].Verdict != Undecided || !errors.Is(r.Failures[0].Why, c.why) {
				t.Fatalf("%+v", r)
			}
			if text := r.Failures[0].Sentence(); !strings.Contains(text, "no verdict") || r.Failures[0].Drawable() {
				t.Error(text)
			}
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if r := Check(ctx, []Partition{hard()}, Limits{}); r.Undecided != 1 {
		t.Errorf("%+v of a check that was called off", r)
	}
}
