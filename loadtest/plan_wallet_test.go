package loadtest

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// places gives the number of each wallet.
func places(plan Plan) map[uuid.UUID]int {
	place := map[uuid.UUID]int{}
	for n, w := range plan.Wallets {
		place[w.ID] = n
	}
	return place
}

// bursts are the shots of a plan that are fired at one moment.
func bursts(plan Plan) map[time.Duration][]Shot {
	at := map[time.Duration][]Shot{}
	for _, s := range plan.Shots {
		at[s.At] = append(at[s.At], s)
	}
	maps.DeleteFunc(at, func(_ time.Duration, shots []Shot) bool { return len(shots) <= 2 })
	return at
}

func TestNewWalletPlan_SameSeedSamePlanOtherSeedOtherPlan(t *testing.T) {
	if !reflect.DeepEqual(NewWalletPlan(quickLoad), NewWalletPlan(quickLoad)) {
		t.Error("two plans of one load differ")
	}
	other := quickLoad
	other.Seed = 2
	if reflect.DeepEqual(NewWalletPlan(quickLoad).Wallets, NewWalletPlan(other).Wallets) {
		t.Error("another seed gives the same wallets")
	}
}

func TestNewWalletPlan_EachIsSentByTheOwnerOfItsWalletToItsRoute(t *testing.T) {
	plan := NewWalletPlan(quickLoad)
	place := places(plan)
	if len(plan.Intents) != 1200 || len(place) != 19 || plan.Clients != 18 {
		t.Fatalf("%d intents, %d wallets, %d clients", len(plan.Intents), len(place), plan.Clients)
	}
	names := map[string]bool{}
	for _, i := range plan.Intents {
		var body struct {
			To     uuid.UUID
			Amount int64
		}
		if err := json.Unmarshal(i.Body, &body); err != nil {
			t.Fatal(err)
		}
		at, route := i.Move.From, "/debits"
		switch i.Action {
		case Credit:
			at, route = i.Move.To, "/credits"
		case Pay:
			route = "/payments"
		}
		if owner := plan.Wallets[place[at]].Client; owner != i.Client || i.Path != "/v1/wallets/"+at.String()+route || names[i.Key] {
			t.Errorf("client %d sends %s, named %s, for a wallet of %d", i.Client, i.Path, i.Key, owner)
		}
		if body.Amount != i.Move.Amount || body.Amount < 1 || i.Action == Pay && body.To != i.Move.To || i.Action != Pay && strings.Contains(string(i.Body), "to") {
			t.Errorf("%s is sent for %+v", i.Body, i.Move)
		}
		names[i.Key] = true
	}
}

func TestNewWalletPlan_OneInTenIsSentTwiceAtOnceToTwoReplicas(t *testing.T) {
	plan := NewWalletPlan(quickLoad)
	twins := map[Action]int{}
	all := 0
	for i, shot := range plan.Shots {
		if i == 0 {
			continue
		}
		before := plan.Shots[i-1]
		if shot.At < before.At {
			t.Fatalf("shot %d is earlier than the one before", i)
		}
		if shot.Intent == before.Intent {
			all++
			twins[shot.Intent.Action]++
			if shot.At != before.At || shot.Replica == before.Replica {
				t.Errorf("twins %+v and %+v: want one moment and two replicas", before, shot)
			}
		}
	}
	if all != 120 || twins[Credit] < 10 || twins[Debit] < 10 || twins[Pay] < 10 {
		t.Errorf("%d twins: %v", all, twins)
	}
}

func TestNewWalletPlan_AmpleWalletsHaveAllThatTheyAreAskedForAndOthersAreShort(t *testing.T) {
	for seed := range int64(20) {
		load := quickLoad
		load.Seed = seed
		plan := NewWalletPlan(load)
		asked := map[uuid.UUID]int64{}
		for _, i := range plan.Intents {
			asked[i.Move.From] += i.Move.Amount
		}
		enough := 0
		for n, w := range plan.Wallets {
			switch {
			case w.Ample && w.Opening < asked[w.ID]:
				t.Errorf("seed %d: wallet %d has %d and is asked for %d", seed, n, w.Opening, asked[w.ID])
			case w.Ample:
				enough++
			case w.Opening > asked[w.ID]/10:
				t.Errorf("seed %d: wallet %d has %d and is asked for %d: it is not short", seed, n, w.Opening, asked[w.ID])
			}
		}
		if enough != ring/2+savers+twoOfOne || plan.Wallets[hotWallet].Ample {
			t.Errorf("seed %d: %d have enough", seed, enough)
		}
	}
}

func TestNewWalletPlan_ABurstIsWholeHoweverLittleIsAskedFor(t *testing.T) {
	if n := len(NewWalletPlan(Load{Rate: 10, Duration: time.Second, Replicas: 2}).Intents); n != walletBurst+savers {
		t.Errorf("%d intents, want %d", n, walletBurst+savers)
	}
}

func TestWalletSteps_AreTheStepsOfAnOperation(t *testing.T) {
	source, err := os.ReadFile("../wallet/steps.go")
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, match := range regexp.MustCompile(`Step = "([a-z-]+)"`).FindAllSubmatch(source, -1) {
		steps = append(steps, string(match[1]))
	}
	if diff := cmp.Diff(steps, walletSteps); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Two intents under one key are two lines of the history.
func TestRecorder_IntentsThatShareAKeyAreToldApart(t *testing.T) {
	var got []string
	r := newRange(t, 1, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get(historyKey) != "" {
			t.Error("the service sees the name of an intent")
		}
		got = append(got, req.Header.Get("Idempotency-Key")+" "+req.URL.Path)
		created(order1)(w)
	})
	v, err := newVolley(t.Context(), r.bases, Headers{"Idempotency-Key", []http.Header{{}}}, time.Second, Classify)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.close)
	for _, name := range []string{"a", "b"} {
		v.settle(t.Context(), 0, &Intent{Key: name, Wire: "shared", Method: http.MethodPost, Path: "/" + name})
	}
	v.settle(t.Context(), 0, &Intent{Key: "c", Method: http.MethodPost, Path: "/c"})
	if diff := cmp.Diff([]string{"shared /a", "shared /b", "c /c"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, record := range v.history.Records() {
		if len(record.Attempts) != 1 || record.Outcome != OK {
			t.Errorf("%s: %+v", record.Key, record.Attempts)
		}
	}
}
