package loadtest

import (
	"fmt"
	"strings"
)

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
