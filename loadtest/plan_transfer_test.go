package loadtest

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// owners gives the client of each account.
func owners(plan Plan) map[uuid.UUID]int {
	owner := map[uuid.UUID]int{}
	for _, a := range plan.Accounts {
		owner[a.ID] = a.Client
	}
	return owner
}

func TestNewTransferPlan_SameSeedSamePlanOtherSeedOtherPlan(t *testing.T) {
	if !reflect.DeepEqual(NewTransferPlan(quickLoad), NewTransferPlan(quickLoad)) {
		t.Error("two plans of one load differ")
	}
	other := quickLoad
	other.Seed = 2
	if reflect.DeepEqual(NewTransferPlan(quickLoad).Accounts, NewTransferPlan(other).Accounts) {
		t.Error("another seed gives the same accounts")
	}
}

func TestNewTransferPlan_EachTransferIsSentByThePayersOwnerAndTouchesAHotAccount(t *testing.T) {
	plan := NewTransferPlan(quickLoad)
	owner := owners(plan)
	if len(owner) != clients || plan.Clients != clients || len(plan.Intents) != 1200 {
		t.Fatalf("%d accounts, %d clients, %d intents", len(owner), plan.Clients, len(plan.Intents))
	}
	for _, i := range plan.Intents {
		if from, to := owner[i.Move.From], owner[i.Move.To]; from != i.Client || from == to || from >= hot && to >= hot {
			t.Errorf("%s: client %d sends from %d to %d", i.Key, i.Client, from, to)
		}
	}
}

func TestNewTransferPlan_AllClientsSendAtOnceAndHotAccountsPayEachOtherAtOnce(t *testing.T) {
	plan := NewTransferPlan(quickLoad)
	owner := owners(plan)
	bursts := map[time.Duration]map[[2]int]bool{}
	for _, shot := range plan.Shots {
		if bursts[shot.At] == nil {
			bursts[shot.At] = map[[2]int]bool{}
		}
		bursts[shot.At][[2]int{owner[shot.Intent.Move.From], owner[shot.Intent.Move.To]}] = true
	}
	crossing, whole := 0, 0
	for _, burst := range bursts {
		if len(burst) == clients {
			whole++
		}
		for pair := range burst {
			if pair[0] < pair[1] && burst[[2]int{pair[1], pair[0]}] && pair[1] < hot {
				crossing++
			}
		}
	}
	if len(bursts) != 19 || whole != 18 || crossing < len(bursts) {
		t.Errorf("%d bursts, %d of them whole, %d pairs of hot accounts in opposite directions", len(bursts), whole, crossing)
	}
}

func TestNewTransferPlan_OneInTenIsSentTwiceAtOnceToTwoReplicasOneInSixIsAHold(t *testing.T) {
	plan := NewTransferPlan(quickLoad)
	twins, holds, left, late := 0, 0, 0, 0
	for i, shot := range plan.Shots {
		if i > 0 && shot.At < plan.Shots[i-1].At {
			t.Fatalf("shot %d is earlier than the one before", i)
		}
		if i > 0 && shot.Intent == plan.Shots[i-1].Intent {
			twins++
			if shot.At != plan.Shots[i-1].At || shot.Replica == plan.Shots[i-1].Replica {
				t.Errorf("twins %+v and %+v: want one moment and two replicas", plan.Shots[i-1], shot)
			}
		}
	}
	for _, i := range plan.Intents {
		h := i.Move.Hold
		if h == nil {
			continue
		}
		holds++
		if h.Post == h.Void || h.For < 900*time.Millisecond || h.For > 2200*time.Millisecond || i.Action != Reserve {
			t.Errorf("%s: %+v", i.Key, h)
		}
		if h.Left {
			left++
		}
		if h.Settle > -30*time.Millisecond {
			late++
		}
	}
	if twins != 120 || holds < 160 || holds > 240 || left == 0 || late < holds/4 || late > 2*holds/3 {
		t.Errorf("%d twins, %d holds, %d left to the sweeper, %d settled at their end or after", twins, holds, left, late)
	}
}

func TestNewTransferPlan_AmpleAccountsHaveAllThatTheyAreAskedForAndManyOthersHaveNot(t *testing.T) {
	for seed := range int64(20) {
		load := quickLoad
		load.Seed = seed
		plan := NewTransferPlan(load)
		asked := make([]int64, clients)
		for _, i := range plan.Intents {
			asked[i.Client] += i.Move.Amount
		}
		enough, short := 0, 0
		for _, a := range plan.Accounts {
			switch {
			case a.Ample && a.Opening < asked[a.Client]:
				t.Errorf("seed %d: account %d has %d and is asked for %d", seed, a.Client, a.Opening, asked[a.Client])
			case a.Ample:
				enough++
			case a.Opening < asked[a.Client]/2:
				short++
			}
		}
		if enough != ample || short < hot+poor {
			t.Errorf("seed %d: %d have enough, %d are short", seed, enough, short)
		}
	}
}

func TestNewTransferPlan_AHoldSaysForHowLongAndATransferDoesNot(t *testing.T) {
	for _, i := range NewTransferPlan(quickLoad).Intents {
		var body struct {
			From, To  uuid.UUID
			Amount    int64
			Currency  string
			Pending   bool
			ExpiresIn string `json:"expires_in"`
		}
		if err := json.Unmarshal(i.Body, &body); err != nil {
			t.Fatal(err)
		}
		d, _ := time.ParseDuration(body.ExpiresIn)
		hold := i.Move.Hold != nil
		if body.From != i.Move.From || body.To != i.Move.To || body.Amount != i.Move.Amount || body.Currency != currency || body.Pending != hold || hold && d != i.Move.Hold.For || !hold && body.ExpiresIn != "" {
			t.Errorf("%s is sent for %+v", i.Body, i.Move)
		}
	}
}

func TestMoneySteps_AreTheStepsOfATransfer(t *testing.T) {
	source, err := os.ReadFile("../transfer/steps.go")
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, match := range regexp.MustCompile(`Step = "([a-z-]+)"`).FindAllSubmatch(source, -1) {
		steps = append(steps, string(match[1]))
	}
	if diff := cmp.Diff(steps, moneySteps); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFlow_AFaultThatTakesLongGetsALongerLoad(t *testing.T) {
	for fault, want := range map[Fault]Load{
		NoFault: quickLoad,
		Pause:   {Rate: 200, Duration: 20 * time.Second, Seed: 1, Replicas: 3},
		Crash:   {Rate: 75, Duration: 16 * time.Second, Seed: 1, Replicas: 3}, // as many requests
	} {
		if got := Transfer.load(quickLoad, fault, 2*time.Second); got != want {
			t.Errorf("%s: %+v, want %+v", fault, got, want)
		}
	}
	if !slices.Equal([]int{len(NewTransferPlan(Load{Rate: 10, Duration: time.Second, Replicas: 2}).Intents)}, []int{10}) {
		t.Error("a load of less than one burst")
	}
}
