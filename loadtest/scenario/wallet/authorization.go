package wallet

import (
	"fmt"
	"strings"

	"shop/loadtest"
)

// sharers are the intents of each key that two were sent under.
func sharers(records []loadtest.Record) map[string][]loadtest.Record {
	shared := map[string][]loadtest.Record{}
	for _, r := range records {
		if r.SharedKey != "" {
			shared[r.SharedKey] = append(shared[r.SharedKey], r)
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
func sharedTwice(records []loadtest.Record) (wrong []string) {
	for key, intents := range sharers(records) {
		done, open := 0, 0
		for _, r := range intents {
			switch {
			case r.Outcome == loadtest.OK:
				done++
			case r.Outcome != loadtest.Rejected || r.Refused("insufficient-funds"): // decided by a stored refusal: that has the key
				open++
			}
		}
		if done > 1 || done == 0 && open == 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %d of %d were done", key, done, len(intents)))
		}
	}
	return wrong
}

// deniedRight lists the refusals that no client had to expect. All of them have a right to
// what they ask for: only money may be short, and the second of two intents under one key
// is refused.
func deniedRight(records []loadtest.Record) (wrong []string) {
	shared := sharers(records)
	for _, r := range records {
		planned := r.Refused("insufficient-funds") || strings.HasPrefix(r.Key, "trespass-") || r.Refused(keyReused) && (len(shared[r.SharedKey]) > 1)
		if r.Outcome == loadtest.Rejected && !planned {
			wrong = append(wrong, r.Key+": "+r.Problem())
		}
	}
	return wrong
}

// wronglyShort lists what was refused for lack of funds although the wallet had
// enough for everything that it was asked for.
func wronglyShort(records []loadtest.Record, wallets []Seed) (wrong []string) {
	ample := map[string]bool{}
	for _, w := range wallets {
		ample[w.ID.String()] = w.Ample
	}
	for _, r := range records {
		if ample[move(r.Intent).wallet().String()] && r.Refused("insufficient-funds") {
			wrong = append(wrong, r.Key+": refused, although there was money for all of them")
		}
	}
	return wrong
}
