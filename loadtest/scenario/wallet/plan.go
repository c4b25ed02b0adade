// SPDX-License-Identifier: MIT

package wallet

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/google/uuid"

	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
)

// The actions of this flow.
const (
	Credit     traffic.Action = "credit"
	Debit      traffic.Action = "debit"
	Pay        traffic.Action = "pay"
	ReadWallet traffic.Action = "read-wallet"
)

// Read is the object of a read.
type Read struct{ Wallet uuid.UUID }

// Move is the object of an operation. A credit has no From, a debit no To.
type Move struct {
	From, To uuid.UUID
	Amount   int64
}

// move returns the object of an intent; the zero Move for a read.
func move(i traffic.Intent) Move {
	m, _ := i.Of.(Move)
	return m
}

const currency = "EUR"

// The wallets of the workload. Each has its own owner, except for the last two. Money moves only
// between wallets of the ring: the ring is one group, and each other wallet is a group of its own.
const (
	hotWallet = 0 // several credits and debits at once: contention for one document
	ring      = 8 // the next: each pays its neighbours and is paid by them: two documents, in both orders
	savers    = 8 // the next: their owners send between the bursts
	twoOfOne  = 2 // the last: both of one client, which uses one key for both
)

// The requests of a burst.
const (
	hotCredits  = 5
	hotDebits   = 5
	ringCredits = 2
	walletBurst = hotCredits + hotDebits + ring + ringCredits + twoOfOne
)

// NewPlan draws a plan of whole bursts, with at least as many intents as the load
// requires. In each burst
//
//   - the hot wallet is credited and debited ten times;
//   - neighbours in the ring pay each other in opposite directions, on different replicas, while
//     some of them are credited;
//   - one key is used for two wallets at once, and two clients of the ring use the same key.
//
// Between two bursts each saver sends once, so that a fault always meets some request. One
// intent in ten is sent twice at once, and one in twenty is abandoned after "busy".
func NewPlan(load traffic.Load) traffic.Plan {
	random := rand.New(rand.NewPCG(uint64(load.Seed), 2))
	plan := traffic.Plan{Clients: 1 + ring + savers + 1}
	var wallets []money.Account
	for w := range plan.Clients + 1 {
		wallets = append(wallets, money.Account{ID: traffic.DrawID(random), Client: min(w, plan.Clients-1), Currency: currency})
	}
	n := int(load.Duration.Seconds() * float64(load.Rate))
	bursts := max(1, (n+walletBurst+savers-1)/(walletBurst+savers))
	for b := range bursts {
		d := draw{random, load, wallets, b, nil}
		d.together(load.At(b, bursts))
		d.alone(load.At(b, bursts), load.At(b+1, bursts))
		for _, request := range d.requests {
			plan.Add(random, load.Replicas, request)
		}
	}
	fund(random, wallets, plan.Intents)
	plan.Given = wallets
	plan.AddBeside(load.Spread(random, "look", 2*len(plan.Intents), 1, func(i int, key string) *traffic.Intent { // half of them of the hot wallet or the ring
		w := wallets[random.IntN([]int{len(wallets), 1 + ring}[i%2])]
		return readIntent(w.Client, key, w.ID)
	})...)
	plan.AddBeside(load.Spread(random, "offence", n, offenceEvery, func(k int, key string) *traffic.Intent {
		own := random.IntN(ring)
		kinds := offences(wallets, key, own, own+1, traffic.DrawID(random))
		return kinds[k%len(kinds)]
	})...)
	return plan
}

func readIntent(client int, key string, wallet uuid.UUID) *traffic.Intent {
	return &traffic.Intent{
		Client: client, Key: key, Action: ReadWallet, Method: http.MethodGet, Path: "/v1/wallets/" + wallet.String(), Of: Read{wallet}, Reads: true,
	}
}

// draw is one burst, with the requests until the next burst.
type draw struct {
	*rand.Rand
	load     traffic.Load
	wallets  []money.Account
	burst    int
	requests []traffic.ScheduledRequest
}

func (d *draw) add(at time.Duration, replica int, name string, action traffic.Action, m Move) *traffic.Intent {
	i := intend(d.wallets, fmt.Sprintf("%s-%d-%05d-%02d", name, d.load.Seed, d.burst, len(d.requests)), action, m)
	i.GivesUp = d.IntN(traffic.GiveUpEvery) == 0
	d.requests = append(d.requests, traffic.ScheduledRequest{At: at, Replica: replica, Intent: i})
	return i
}

func (d *draw) replica() int { return d.IntN(d.load.Replicas) }

func (d *draw) amount(most int64) int64 { return 1 + d.Int64N(most) }

// together adds the requests of one moment, shuffled, so that no kind of request is always
// first.
func (d *draw) together(at time.Duration) {
	for range hotCredits {
		d.add(at, d.replica(), "credit", Credit, Move{To: d.wallets[hotWallet].ID, Amount: 100 + d.amount(500)})
	}
	for range hotDebits { // more than the credits, so that the wallet is short of money at times
		d.add(at, d.replica(), "debit", Debit, Move{From: d.wallets[hotWallet].ID, Amount: 100 + d.amount(900)})
	}
	for i := range ring / 2 { // each burst pairs other neighbours
		a, b := d.wallets[1+(2*i+d.burst)%ring].ID, d.wallets[1+(2*i+d.burst+1)%ring].ID
		replica := d.replica()
		d.add(at, replica, "pay", Pay, Move{From: a, To: b, Amount: d.amount(100)})
		d.add(at, traffic.OtherReplica(d.Rand, replica, d.load.Replicas), "pay", Pay, Move{From: b, To: a, Amount: d.amount(100)})
	}
	var first string // the first credit's key, which the others use too: keys of different clients are independent
	for _, w := range d.Perm(ring)[:ringCredits] {
		i := d.add(at, d.replica(), "credit", Credit, Move{To: d.wallets[1+w].ID, Amount: d.amount(50)})
		i.SharedKey = first
		first = cmp.Or(first, i.Key)
	}
	replica := d.replica()
	for _, w := range d.wallets[len(d.wallets)-twoOfOne:] {
		action, m := Debit, Move{From: w.ID, Amount: d.amount(100)}
		if d.burst%2 == 1 {
			action, m = Credit, Move{To: w.ID, Amount: m.Amount}
		}
		d.add(at, replica, "shared", action, m).SharedKey = fmt.Sprintf("shared-%d-%05d", d.load.Seed, d.burst)
		replica = traffic.OtherReplica(d.Rand, replica, d.load.Replicas)
	}
	d.Shuffle(len(d.requests), func(i, j int) { d.requests[i], d.requests[j] = d.requests[j], d.requests[i] })
}

// alone adds the requests of the savers, spread over the time: credits and debits in turn.
func (d *draw) alone(from, until time.Duration) {
	for n, w := range d.wallets[1+ring : 1+ring+savers] {
		at := from + (until-from)*time.Duration(n+1)/(savers+1)
		if (n+d.burst)%2 == 0 {
			d.add(at, d.replica(), "credit", Credit, Move{To: w.ID, Amount: d.amount(100)})
		} else {
			d.add(at, d.replica(), "debit", Debit, Move{From: w.ID, Amount: d.amount(100)})
		}
	}
}

// fund opens half of the ring, the savers, and the last two wallets with the sum of all their
// payments, and the others with almost nothing.
func fund(random *rand.Rand, wallets []money.Account, intents []*traffic.Intent) {
	asked := map[uuid.UUID]int64{}
	for _, i := range intents {
		asked[move(*i).From] += move(*i).Amount
	}
	for w := range wallets {
		seed := &wallets[w]
		if seed.Ample = w > ring || w != hotWallet && w%2 == 0; seed.Ample {
			seed.Opening = asked[seed.ID]
		} else {
			seed.Opening = 50 + random.Int64N(100)
		}
	}
}

// intend returns a request of the owner of the wallet that pays or is credited.
func intend(wallets []money.Account, key string, action traffic.Action, m Move) *traffic.Intent {
	at := m.wallet()
	path := map[traffic.Action]string{Credit: "credits", Debit: "debits", Pay: "payments"}[action]
	body := map[string]any{"amount": m.Amount}
	if action == Pay {
		body["to"] = m.To
	}
	i := &traffic.Intent{
		Key: key, Action: action, Method: http.MethodPost, Path: "/v1/wallets/" + at.String() + "/" + path,
		Body: traffic.Encode(body), Of: m,
	}
	for _, id := range []uuid.UUID{m.From, m.To} {
		if id != uuid.Nil {
			i.Contends = append(i.Contends, id.String())
		}
	}
	for _, w := range wallets {
		if w.ID == at {
			i.Client = w.Client
		}
	}
	return i
}

// payer returns the wallet in the path of a request.
func payer(i traffic.Intent) uuid.UUID { return move(i).wallet() }

// wallet returns the wallet in the path of a request.
func (m Move) wallet() uuid.UUID {
	if m.From == uuid.Nil {
		return m.To
	}
	return m.From
}
