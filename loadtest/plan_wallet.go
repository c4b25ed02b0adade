package loadtest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// The wallets of the crowd. Each has an owner of its own, but for the last two.
const (
	hotWallet = 0 // credits and debits of one wallet, several at once: the fight for one document
	ring      = 8 // next: each pays its neighbours and is paid by them: two documents, in both orders
	savers    = 8 // next: whose owners have them to themselves, so that nobody is in their way
	twoOfOne  = 2 // the last: both of one client, who uses one key for both
)

// What is sent at the same moment, again and again.
const (
	hotCredits  = 2
	hotDebits   = 2
	ringCredits = 2
	walletBurst = hotCredits + hotDebits + ring + ringCredits + twoOfOne
)

// NewWalletPlan draws a plan: bursts, of as many intents as the load asks for and
// perhaps some more, so that each is whole. In each of them the hot wallet is
// credited and debited several times, the ring's neighbours pay each other, in
// opposite directions on different replicas, while some are credited, and one key
// is used for two wallets at once. Until the next one each saver comes once, so
// that there is always somebody to be met by a fault. One intent in ten is sent
// twice at once.
func NewWalletPlan(load Load) Plan {
	random := rand.New(rand.NewPCG(uint64(load.Seed), 2))
	plan := Plan{Clients: 1 + ring + savers + 1}
	for w := range plan.Clients + 1 {
		plan.Wallets = append(plan.Wallets, Purse{ID: drawID(random), Client: min(w, plan.Clients-1), Currency: currency})
	}
	n := int(load.Duration.Seconds() * float64(load.Rate))
	bursts := max(1, (n+walletBurst+savers-1)/(walletBurst+savers))
	for b := range bursts {
		d := draw{random, load, plan.Wallets, b, nil}
		d.together(load.at(b, bursts))
		d.alone(load.at(b, bursts), load.at(b+1, bursts))
		for _, shot := range d.shots {
			plan.Shots = append(plan.Shots, shot)
			if len(plan.Intents)%twinEvery == 0 {
				plan.Shots = append(plan.Shots, Shot{shot.At, another(random, shot.Replica, load.Replicas), shot.Intent})
			}
			plan.Intents = append(plan.Intents, shot.Intent)
		}
	}
	plan.fund(random)
	return plan
}

// draw is one burst, and what comes until the next.
type draw struct {
	*rand.Rand
	load    Load
	wallets []Purse
	burst   int
	shots   []Shot
}

func (d *draw) add(at time.Duration, replica int, name string, action Action, m Move) *Intent {
	i := walletIntent(d.wallets, fmt.Sprintf("%s-%d-%05d-%02d", name, d.load.Seed, d.burst, len(d.shots)), action, m)
	d.shots = append(d.shots, Shot{at, replica, i})
	return i
}

func (d *draw) replica() int { return d.IntN(d.load.Replicas) }

func (d *draw) amount(most int64) int64 { return 1 + d.Int64N(most) }

// together is what is sent at one moment: in one heap, so that no kind of it is
// always the first.
func (d *draw) together(at time.Duration) {
	for range hotCredits {
		d.add(at, d.replica(), "credit", Credit, Move{To: d.wallets[hotWallet].ID, Amount: 100 + d.amount(500)})
	}
	for range hotDebits { // more than comes in, so that it is short of money at times
		d.add(at, d.replica(), "debit", Debit, Move{From: d.wallets[hotWallet].ID, Amount: 100 + d.amount(900)})
	}
	for i := range ring / 2 { // the pairs of one burst are not those of the next
		a, b := d.wallets[1+(2*i+d.burst)%ring].ID, d.wallets[1+(2*i+d.burst+1)%ring].ID
		replica := d.replica()
		d.add(at, replica, "pay", Pay, Move{From: a, To: b, Amount: d.amount(100)})
		d.add(at, another(d.Rand, replica, d.load.Replicas), "pay", Pay, Move{From: b, To: a, Amount: d.amount(100)})
	}
	for _, w := range d.Perm(ring)[:ringCredits] {
		d.add(at, d.replica(), "credit", Credit, Move{To: d.wallets[1+w].ID, Amount: d.amount(50)})
	}
	replica := d.replica()
	for _, w := range d.wallets[len(d.wallets)-twoOfOne:] {
		action, m := Debit, Move{From: w.ID, Amount: d.amount(100)}
		if d.burst%2 == 1 {
			action, m = Credit, Move{To: w.ID, Amount: m.Amount}
		}
		d.add(at, replica, "shared", action, m).Wire = fmt.Sprintf("shared-%d-%05d", d.load.Seed, d.burst)
		replica = another(d.Rand, replica, d.load.Replicas)
	}
	d.Shuffle(len(d.shots), func(i, j int) { d.shots[i], d.shots[j] = d.shots[j], d.shots[i] })
}

// alone is what the savers do, one after the other: one in, the next time out.
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

// fund gives half of the ring, and those who are alone with their wallets, all
// that they will be asked for, and the others next to nothing.
func (p *Plan) fund(random *rand.Rand) {
	asked := map[uuid.UUID]int64{}
	for _, i := range p.Intents {
		asked[i.Move.From] += i.Move.Amount
	}
	for w := range p.Wallets {
		purse := &p.Wallets[w]
		if purse.Ample = w > ring || w != hotWallet && w%2 == 0; purse.Ample {
			purse.Opening = asked[purse.ID]
		} else {
			purse.Opening = 50 + random.Int64N(100)
		}
	}
}

// walletIntent is sent by the owner of the wallet that pays, or is credited.
func walletIntent(wallets []Purse, key string, action Action, m Move) *Intent {
	at := m.wallet()
	path := map[Action]string{Credit: "credits", Debit: "debits", Pay: "payments"}[action]
	body := map[string]any{"amount": m.Amount}
	if action == Pay {
		body["to"] = m.To
	}
	i := &Intent{
		Key: key, Action: action, Method: http.MethodPost, Path: "/v1/wallets/" + at.String() + "/" + path,
		Body: encode(body), Move: &m,
	}
	for _, w := range wallets {
		if w.ID == at {
			i.Client = w.Client
		}
	}
	return i
}

// wallet is the one that a request is made at.
func (m *Move) wallet() uuid.UUID {
	if m.From == uuid.Nil {
		return m.To
	}
	return m.From
}
