package loadtest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// The crowd of the transfer flow: each client owns one account, and all of them
// send at the same moment, again and again. Every transfer has to do with a hot
// account, so that there is always a queue at each of them.
const (
	clients = 64
	hot     = 8  // the first ones: asked for more than comes in
	ample   = 16 // next: have all that they are asked for, so that no refusal is right
	poor    = 24 // next: have next to nothing; the others have half
)

const (
	currency  = "EUR"
	holdEvery = 6 // about
	leaveOne  = 8 // of so many holds one is left to the sweeper
)

// NewTransferPlan draws a plan: bursts of one intent of each client. Hot accounts
// pay each other in opposite directions at the same moment, or a purse; purses
// pay a hot account. One intent in ten is sent twice at once, one in six is a hold.
func NewTransferPlan(load Load) Plan {
	random := rand.New(rand.NewPCG(uint64(load.Seed), 1))
	plan := Plan{Clients: clients}
	for c := range clients {
		plan.Accounts = append(plan.Accounts, Account{ID: drawID(random), Client: c, Currency: currency, Ample: c >= hot && c < hot+ample})
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
			From: plan.Accounts[from].ID, To: plan.Accounts[payees[from]].ID,
			Amount: drawAmount(random, from), Hold: drawHold(random, load),
		})
		asked[from] += intent.Move.Amount
		plan.Intents = append(plan.Intents, intent)
		at := load.at(i-from, n)
		replica := random.IntN(load.Replicas)
		plan.Shots = append(plan.Shots, Shot{at, replica, intent})
		if i%twinEvery == 0 {
			plan.Shots = append(plan.Shots, Shot{at, another(random, replica, load.Replicas), intent})
		}
	}
	for c := range plan.Accounts {
		plan.Accounts[c].Opening = drawOpening(random, c, asked[c])
	}
	return plan
}

// another replica than this one, if there is one.
func another(random *rand.Rand, replica, replicas int) int {
	return (replica + 1 + random.IntN(max(1, replicas-1))) % replicas
}

func drawID(random *rand.Rand) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], random.Uint64())
	binary.BigEndian.PutUint64(id[8:], random.Uint64())
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // as version 4 has it
	return id
}

// drawPayees gives each client's payee in one burst.
func drawPayees(random *rand.Rand) []int {
	payees := make([]int, clients)
	for c := range payees {
		payees[c] = random.IntN(hot)
	}
	pairs := random.Perm(hot)
	for i := 0; i < hot; i += 2 {
		a, b := pairs[i], pairs[i+1]
		payees[a], payees[b] = b, a
		if random.IntN(2) == 0 {
			payees[a], payees[b] = hot+random.IntN(clients-hot), hot+random.IntN(clients-hot)
		}
	}
	return payees
}

// drawAmount: a hot account is asked for about as much as comes in from the
// purses in one burst, and so is short half of the time.
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

// drawHold is nil for most. A post and a void come together, mostly before the
// hold is over, sometimes so that they wait for the accounts while it ends,
// sometimes after it: then the sweeper is there too. The holds of a burst end
// with a later one, when there is a queue at the accounts.
func drawHold(random *rand.Rand, load Load) *Hold {
	if random.IntN(holdEvery) != 0 {
		return nil
	}
	h := &Hold{For: time.Duration(1000+random.IntN(1001)) * time.Millisecond}
	if burst := time.Second * clients / time.Duration(load.Rate); burst < time.Second {
		h.For = max(burst, (h.For + burst/2).Truncate(burst))
	}
	h.Post = random.IntN(load.Replicas)
	h.Void = another(random, h.Post, load.Replicas)
	h.Part = random.IntN(3) == 0
	h.Left = random.IntN(leaveOne) == 0
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

func moveIntent(client int, key string, m *Move) *Intent {
	body := map[string]any{"from": m.From, "to": m.To, "amount": m.Amount, "currency": currency}
	action := Pay
	if m.Hold != nil {
		action = Reserve
		body["pending"], body["expires_in"] = true, m.Hold.For.String()
	}
	return &Intent{Client: client, Key: key, Action: action, Method: http.MethodPost, Path: "/v1/transfers", Body: encode(body), Move: m}
}

// encode is for bodies that can be nothing but valid.
func encode(body any) []byte {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return text
}
