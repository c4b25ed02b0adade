package loadtest

import (
	"context"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// strangeWallets lists those that are not as they were opened: who can change an
// opening, or open one more, makes money that M1 would take for paid in.
func strangeWallets(ctx context.Context, db *mongo.Database, plan []Purse, clients []Credentials) (strange []string, err error) {
	var stored []struct {
		ID       bson.Binary `bson:"_id"`
		Owner    bson.Binary
		Currency string
		Opening  int64
	}
	if err := aggregate(ctx, db, "wallets", `{"$sort": {"_id": 1}}`, &stored); err != nil {
		return nil, fmt.Errorf("audit: wallets: %w", err)
	}
	opened := map[string]Purse{}
	for _, p := range plan {
		opened[string(p.ID[:])] = p
	}
	for _, w := range stored {
		p, is := opened[string(w.ID.Data)]
		if !is || w.Opening != p.Opening || w.Currency != p.Currency || string(w.Owner.Data) != string(clients[p.Client].ID[:]) {
			strange = append(strange, fmt.Sprintf("wallet %x is not as it was opened", w.ID.Data))
		}
		delete(opened, string(w.ID.Data))
	}
	for _, p := range opened {
		strange = append(strange, "wallet "+p.ID.String()+" is gone")
	}
	return strange, nil
}

// sharers are the intents of each key that two were sent under.
func sharers(records []Record) map[string][]Record {
	shared := map[string][]Record{}
	for _, r := range records {
		if r.Wire != "" {
			shared[r.Wire] = append(shared[r.Wire], r)
		}
	}
	for _, r := range records {
		if _, is := shared[r.Key]; is { // the first to have the key, which is also its name
			shared[r.Key] = append(shared[r.Key], r)
		}
	}
	return shared
}

// sharedTwice lists the keys that two wallets were debited under at once, where
// not exactly one of them was. (As long as one is undecided, it may be that one.)
func sharedTwice(records []Record) (wrong []string) {
	for key, intents := range sharers(records) {
		done, open := 0, 0
		for _, r := range intents {
			switch {
			case r.Outcome == OK:
				done++
			case r.Outcome != Rejected || r.refused("insufficient-funds"): // decided by a stored refusal: that has the key
				open++
			}
		}
		if done > 1 || done == 0 && open == 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %d of %d were done", key, done, len(intents)))
		}
	}
	return wrong
}

// deniedRight lists the refusals that nobody had to expect. All of these clients
// have a right to what they ask for, and know what they ask: only their money may
// be short, and who comes second with a key that he used for something else is told so.
func deniedRight(records []Record) (wrong []string) {
	shared := sharers(records)
	for _, r := range records {
		planned := r.refused("insufficient-funds") || strings.HasPrefix(r.Key, "trespass-") || r.refused(keyReused) && (len(shared[r.Wire]) > 1)
		if r.Outcome == Rejected && !planned {
			wrong = append(wrong, r.Key+": "+r.problem())
		}
	}
	return wrong
}

// wronglyShort lists what was refused for lack of funds although the wallet had
// enough for everything that it was asked for.
func wronglyShort(records []Record, wallets []Purse) (wrong []string) {
	ample := map[string]bool{}
	for _, w := range wallets {
		ample[w.ID.String()] = w.Ample
	}
	for _, r := range records {
		if ample[r.Move.wallet().String()] && r.refused("insufficient-funds") {
			wrong = append(wrong, r.Key+": refused, although there was money for all of them")
		}
	}
	return wrong
}
