package wallet

import (
	"context"
	"fmt"

	"shop/loadtest"
	"shop/locking/invariant"
)

// spend shows that all money can be spent, and no more than all of it, and
// that a key stays with what it was used for: each wallet is debited by all that
// it has, which must work, and then by one more, which must be refused; and the
// key of that, which is decided, must not do for another wallet.
func spend(ctx context.Context, t *loadtest.Trial) invariant.Findings {
	ctx, stop := context.WithTimeout(ctx, t.Patience())
	defer stop()
	Of(t).countClients(ctx, t.Prefix)
	findings := invariant.Findings{}
	findings.Add("I-SPENT")
	wallets := Seeds(t.Plan)
	for i, w := range wallets {
		if wrong := emptyWallet(ctx, t.Run, i, wallets, w); wrong != "" {
			findings.Add("I-SPENT", "wallet "+w.ID.String()+": "+wrong)
		}
	}
	if wrong := trespass(ctx, t.Run, wallets, wallets[0], wallets[1]); wrong != "" {
		findings.Add("I-SPENT", "wallet "+wallets[1].ID.String()+": "+wrong)
	}
	last := len(wallets) - 1 // of one client: its key would do for the other, if it did for any
	if wrong := reuse(ctx, t.Run, wallets, wallets[last-1], wallets[last]); wrong != "" {
		findings.Add("I-SPENT", "wallet "+wallets[last].ID.String()+": "+wrong)
	}
	return findings
}

// emptyWallet says what went wrong; "" is nothing.
func emptyWallet(ctx context.Context, run *loadtest.Run, replica int, wallets []Seed, w Seed) string {
	balance, err := run.Ask(ctx, replica, "/v1/wallets/"+w.ID.String(), w.Client, "balance")
	if err != nil {
		return "it cannot be read: " + err.Error()
	}
	if balance < 0 {
		return fmt.Sprintf("it has %d", balance)
	}
	if balance > 0 {
		all := intend(wallets, "all-"+w.ID.String(), Debit, Move{From: w.ID, Amount: balance})
		if !run.Settle(ctx, replica, all) {
			return fmt.Sprintf("it has %d, and to take them out ended as %s", balance, run.History.Last(all.Key))
		}
	}
	more := intend(wallets, oneMore(w), Debit, Move{From: w.ID, Amount: 1})
	if run.Settle(ctx, replica, more); run.History.Problem(more.Key) != "insufficient-funds" {
		return fmt.Sprintf("all %d were taken out, and 1 more ended as %s", balance, run.History.Last(more.Key))
	}
	return ""
}

// trespass lets the owner of one wallet pay itself from a wallet that it does not own.
func trespass(ctx context.Context, run *loadtest.Run, wallets []Seed, own, other Seed) string {
	i := intend(wallets, "trespass-"+other.ID.String(), Pay, Move{From: other.ID, To: own.ID, Amount: 1})
	i.Client = own.Client
	if run.Settle(ctx, 0, i); run.History.Problem(i.Key) != "forbidden" {
		return fmt.Sprintf("a payment from it by another client ended as %s", run.History.Last(i.Key))
	}
	return ""
}

// reuse sends the same request for another wallet, under the same key.
func reuse(ctx context.Context, run *loadtest.Run, wallets []Seed, decided, other Seed) string {
	again := intend(wallets, "reused-"+other.ID.String(), Debit, Move{From: other.ID, Amount: 1})
	again.SharedKey = oneMore(decided)
	if run.Settle(ctx, 0, again); run.History.Problem(again.Key) != keyReused {
		return fmt.Sprintf("a key that was used for wallet %s ended as %s", decided.ID, run.History.Last(again.Key))
	}
	return ""
}

// oneMore is the key of the debit that is one too much.
func oneMore(w Seed) string { return "more-" + w.ID.String() }

const keyReused = "idempotency-key-reused"
