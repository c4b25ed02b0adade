// SPDX-License-Identifier: MIT

package mongofault

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"shop/loadtest/fault"
	"shop/wallet"
)

func TestCommitUnknown_LosesNoRealOperationAndAllAreResolved(t *testing.T) {
	for _, strategy := range []string{"lockid", "inc"} {
		t.Run(strategy, func(t *testing.T) {
			url, _ := private(t, "mongo") // a server has only one failCommand failpoint
			c := newPair(t, url, strategy, 3)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan int64, 1)
			go func() { done <- c.churn(ctx, 3) }()
			var (
				events []fault.Event
				err    error
				seen   = map[string]int64{}
			)
			for limit := time.Now().Add(time.Minute); err == nil && (seen["commits_cut"] < 3 || seen["commits_failed"] < 3) && time.Now().Before(limit); seen = fault.Seen(events) {
				var more []fault.Event
				more, err = CommitUnknown{Proxies: c.proxies, Every: 200 * time.Millisecond, Phase: 500 * time.Millisecond}.Inject(t.Context(), 3*time.Second)
				events = append(events, more...)
			}
			cancel()
			n := <-done
			t.Logf("%d operations, %v, %v", n, seen, c.events)
			if err != nil || seen["commits_cut"] < 3 || seen["commits_failed"] < 3 {
				t.Errorf("%v, %v", seen, err)
			}
			var keys []string
			for _, e := range events {
				keys = append(keys, e.Keys...)
			}
			if n := int64(len(keys)); n < 3 || n > seen["commits_cut"]+seen["commits_failed"] || slices.Contains(keys, "") {
				t.Errorf("%d keys of commits in doubt, %v: %.5q", n, seen, keys)
			}
			if c.events[wallet.Ambiguous] == 0 || c.events[wallet.Resolved] == 0 || c.wrong() != 0 || c.operations() != n {
				t.Errorf("%v, wrong by %d, %d operations stored", c.events, c.wrong(), c.operations())
			}
			for _, w := range c.proxies {
				if _, breaches := w.Breaches(strategy); strings.Join(breaches, "") != "" {
					t.Errorf("%q", breaches)
				}
			}
		})
	}
}
