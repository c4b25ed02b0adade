// SPDX-License-Identifier: MIT

package transfer

import (
	"cmp"
	"encoding/json"
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
	Pay          traffic.Action = "pay"
	Reserve      traffic.Action = "reserve"
	PostHold     traffic.Action = "post"
	VoidHold     traffic.Action = "void"
	ReadAccount  traffic.Action = "read-account"
	ReadTransfer traffic.Action = "read-transfer"
)

// Move is the object of a transfer, or of a post or void.
type Move struct {
	From, To uuid.UUID
	Amount   int64     // to be moved, held or posted; 0 in a post: all
	Hold     *Hold     // nil: the money moves at once
	Of       uuid.UUID // the hold that is posted or voided
}

// Read is the object of a read.
type Read struct{ Account, Transfer uuid.UUID }

// move returns the object of an intent; nil for a read.
func move(i traffic.Intent) *Move {
	m, _ := i.Of.(*Move)
	return m
}

// Hold is a hold that is posted and voided at the same moment, on two replicas.
type Hold struct {
	For    time.Duration
	Settle time.Duration  // when it is settled, relative to its expiry: mostly negative
	Part   bool           // half of the amount is posted
	Left   bool           // neither posted nor voided: the sweeper has to end it
	Twice  traffic.Action // posted, or voided, twice at once under two keys; "": once each
	Post   int            // the replica to which the post is sent
	Void   int
}

// The workload: each client owns one account, and all clients send bursts at
// the same moment. Every transfer involves a hot account, so that each hot account
// always has a queue. Account c belongs to group c % groups, and pays only accounts of
// that group: each group is a separate bank, with its share of each kind of
// account.
const (
	clients = 64
	groups  = 4
	hot     = 8  // the first accounts: they are to pay more than they receive
	ample   = 16 // the next: they cover all their payments, so no refusal is right
	poor    = 24 // the next: they have almost nothing; the remaining ones have half
)

const (
	currency  = "EUR"
	holdEvery = 6 // about one in this many transfers is a hold
	leaveOne  = 8 // one in this many holds is left to the sweeper
	twiceOne  = 6 // one in this many holds is posted twice, and one voided twice
)

const farApart = 2 * time.Second

// NewPlan draws a plan: bursts of one intent of each client. Hot accounts
// pay each other in opposite directions at the same moment, or pay another account. All other
// accounts pay a hot account. One intent in ten is sent twice at once, one in six is a hold.
func NewPlan(load traffic.Load) traffic.Plan {
	random := rand.New(rand.NewPCG(uint64(load.Seed), 1))
	plan := traffic.Plan{Clients: clients}
	var accounts []money.Account
	for c := range clients {
		accounts = append(accounts, money.Account{ID: traffic.DrawID(random), Client: c, Currency: currency, Ample: c >= hot && c < hot+ample})
	}
	asked := make([]int64, clients)
	n := int(load.Duration.Seconds() * float64(load.Rate))
	var payees []int
	for i := range n {
		if i%clients == 0 {
			payees = drawPayees(random)
		}
		from := i % clients
		intent := moveIntent(from, fmt.Sprintf("move-%d-%06d", load.Seed, i), &Move{
			From: accounts[from].ID, To: accounts[payees[from]].ID,
			Amount: drawAmount(random, from), Hold: drawHold(random, load),
		})
		intent.GivesUp = random.IntN(traffic.GiveUpEvery) == 0
		if other := plan.SameKey(); other != nil {
			intent.SharedKey = other.Key
		}
		asked[from] += move(*intent).Amount
		plan.Add(random, load.Replicas, traffic.ScheduledRequest{At: burstAt(load, i, n), Replica: random.IntN(load.Replicas), Intent: intent})
	}
	for c := range accounts {
		accounts[c].Opening = drawOpening(random, c, asked[c])
	}
	plan.Given = accounts
	plan.AddBeside(load.Spread(random, "look", n, 1, func(i int, key string) *traffic.Intent { // half of them of hot accounts
		a := accounts[random.IntN([]int{clients, hot}[i%2])]
		return readIntent(a.Client, key, Read{Account: a.ID})
	})...)
	plan.AddBeside(load.Spread(random, "offence", n, offenceEvery, func(k int, key string) *traffic.Intent {
		own := accounts[random.IntN(clients)]
		kinds := offences(key, own, accounts[stranger(own.Client)], traffic.DrawID(random))
		return kinds[k%len(kinds)]
	})...)
	return plan
}

// burstAt returns when intent i of n is sent: with its burst. If bursts are far apart, each group has a
// moment of its own: a fault between two bursts would hit no transfer.
func burstAt(load traffic.Load, i, n int) time.Duration {
	from := i % clients
	at, next := load.At(i-from, n), load.At(i-from+clients, n)
	if next-at <= farApart {
		return at
	}
	return min(at+(next-at)*time.Duration(from%groups)/groups, load.Duration)
}

// readIntent reads an account or a transfer.
func readIntent(client int, key string, of Read) *traffic.Intent {
	i := &traffic.Intent{Client: client, Key: key, Action: ReadAccount, Method: http.MethodGet, Path: "/v1/accounts/" + of.Account.String(), Of: of, Reads: true}
	if of.Transfer != uuid.Nil {
		i.Action, i.Path = ReadTransfer, "/v1/transfers/"+of.Transfer.String()
	}
	return i
}

// drawPayees draws each client's payee in one burst: a hot account of its group, one of them for most of the group,
// so that about ten requests meet there. The hot accounts of a group pay each other, or other accounts of the
// group.
func drawPayees(random *rand.Rand) []int {
	payees, order := make([]int, clients), random.Perm(hot/groups)
	for c := range payees {
		payees[c] = c%groups + groups*order[traffic.Uneven(random, len(order))]
	}
	for group := range groups {
		pairs := random.Perm(hot / groups)
		for i := 0; i < len(pairs); i += 2 {
			a, b := group+groups*pairs[i], group+groups*pairs[i+1]
			payees[a], payees[b] = b, a
			if random.IntN(2) == 0 {
				payees[a], payees[b] = hot+group+groups*random.IntN((clients-hot)/groups), hot+group+groups*random.IntN((clients-hot)/groups)
			}
		}
	}
	return payees
}

// drawAmount draws amounts such that a hot account is to pay about as much as it
// receives in one burst, and so is short half of the time.
func drawAmount(random *rand.Rand, from int) int64 {
	if from < hot {
		return 100 + random.Int64N(500)
	}
	return 1 + random.Int64N(100)
}

func drawOpening(random *rand.Rand, c int, asked int64) int64 {
	switch {
	case c < hot:
		return 50 + random.Int64N(100)
	case c < hot+ample:
		return asked
	case c < hot+ample+poor:
		return random.Int64N(50)
	default:
		return asked / 2
	}
}

// drawHold returns nil for most transfers. A post and a void are sent together: mostly before the
// hold expires, sometimes so that they wait for the accounts while it expires, and
// sometimes after it, when the sweeper competes too. The holds of a burst expire at
// the time of a later burst, when the accounts have queues.
func drawHold(random *rand.Rand, load traffic.Load) *Hold {
	if random.IntN(holdEvery) != 0 {
		return nil
	}
	shortest := 1000
	if load.Duration < 4*time.Second {
		shortest = 500 // a short load does not wait as long for its last holds
	}
	h := &Hold{For: time.Duration(shortest+random.IntN(shortest+1)) * time.Millisecond}
	if burst := time.Second * clients / time.Duration(load.Rate); burst < time.Second {
		h.For = max(burst, (h.For + burst/2).Truncate(burst))
	}
	h.Post = random.IntN(load.Replicas)
	h.Void = traffic.OtherReplica(random, h.Post, load.Replicas)
	h.Part = random.IntN(3) == 0
	h.Left = random.IntN(leaveOne) == 0
	switch random.IntN(twiceOne) {
	case 0:
		h.Twice = PostHold
	case 1:
		h.Twice = VoidHold
	}
	switch when := random.IntN(100); {
	case when < 50:
		h.Settle = -time.Duration(30+random.IntN(770)) * time.Millisecond
	case when < 85:
		h.Settle = -time.Duration(random.IntN(30)) * time.Millisecond
	default:
		h.Settle = time.Duration(10+random.IntN(190)) * time.Millisecond
	}
	return h
}

func moveIntent(client int, key string, m *Move) *traffic.Intent {
	body := map[string]any{"from": m.From, "to": m.To, "amount": m.Amount, "currency": currency}
	action := Pay
	if m.Hold != nil {
		action = Reserve
		body["pending"], body["expires_in"] = true, m.Hold.For.String()
	}
	i := intend(client, key, action, "/v1/transfers", m)
	i.Body = traffic.Encode(body)
	return i
}

// intend returns a request about a transfer.
func intend(client int, key string, action traffic.Action, path string, m *Move) *traffic.Intent {
	return &traffic.Intent{
		Client: client, Key: key, Action: action, Method: http.MethodPost, Path: path, Of: m,
		Contends: []string{m.From.String(), m.To.String()}, Ends: action == PostHold || action == VoidHold,
	}
}

// settle returns the requests that end a hold: a post and a void at the same moment,
// on two replicas, or one of them twice. The moment is relative to the expiry by the
// database's clock; if that clock differs from this one, only the moment changes.
func settle(r traffic.Record) []traffic.ScheduledRequest {
	m := move(r.Intent)
	if r.Action != Reserve || r.Outcome != traffic.OK || m.Hold.Left {
		return nil
	}
	var t struct {
		ID        uuid.UUID
		ExpiresAt time.Time `json:"expires_at"`
	}
	if json.Unmarshal(r.Body, &t) != nil {
		return nil // I-ACK finds the malformed answer
	}
	h, at := m.Hold, time.Until(t.ExpiresAt)+m.Hold.Settle
	var part int64
	if h.Part {
		part = max(1, m.Amount/2)
	}
	amount := map[traffic.Action]int64{PostHold: part}
	first, second := cmp.Or(h.Twice, PostHold), cmp.Or(h.Twice, VoidHold)
	one, other := endIntent(r, first, t.ID, amount[first]), endIntent(r, second, t.ID, amount[second])
	if first == second {
		other.Key += "-2"
	}
	return []traffic.ScheduledRequest{{At: at, Replica: h.Post, Intent: one}, {At: at, Replica: h.Void, Intent: other}}
}

// endIntent returns a post or a void; a post of 0 is of all.
func endIntent(r traffic.Record, action traffic.Action, id uuid.UUID, amount int64) *traffic.Intent {
	m := move(r.Intent)
	path := "/v1/transfers/" + id.String() + "/" + string(action)
	i := intend(r.Client, string(action)+"-"+r.Key, action, path, &Move{From: m.From, To: m.To, Amount: amount, Of: id})
	if amount > 0 {
		i.Body = traffic.Encode(map[string]int64{"amount": amount})
	}
	return i
}
