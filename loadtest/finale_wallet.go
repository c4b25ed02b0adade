package loadtest

import (
	"context"
	"fmt"

	"shop/locking/invariant"
)

// spendWallets shows that all money can be spent, and no more than all of it, and
// that a key stays with what it was used for: each wallet is debited by all that
// it has, which must work, and then by one more, which must be refused; and the
// key of that, which is decided, must not do for another wallet.
func spendWallets(ctx context.Context, r *run) invariant.Findings {
	ctx, stop := context.WithTimeout(ctx, r.patience())
	defer stop()
	r.seeMongoClients(ctx)
	findings := invariant.Findings{}
	findings.Add("I-SPENT")
	wallets := r.plan.Wallets
	for i, w := range wallets {
		if wrong := r.volley.emptyWallet(ctx, i, wallets, w); wrong != "" {
			findings.Add("I-SPENT", "wallet "+w.ID.String()+": "+wrong)
		}
	}
	if wrong := r.volley.trespass(ctx, wallets, wallets[0], wallets[1]); wrong != "" {
		findings.Add("I-SPENT", "wallet "+wallets[1].ID.String()+": "+wrong)
	}
	last := len(wallets) - 1 // of one client: its key would do for the other, if it did for any
	if wrong := r.volley.reuse(ctx, wallets, wallets[last-1], wallets[last]); wrong != "" {
		findings.Add("I-SPENT", "wallet "+wallets[last].ID.String()+": "+wrong)
	}
	return findings
}

// emptyWallet says what went wrong; "" is nothing.
func (v *volley) emptyWallet(ctx context.Context, replica int, wallets []Purse, w Purse) string {
	balance, err := v.ask(ctx, replica, "/v1/wallets/"+w.ID.String(), w.Client, "balance")
	if err != nil {
		return "it cannot be read: " + err.Error()
	}
	if balance < 0 {
		return fmt.Sprintf("it has %d", balance)
	}
	if balance > 0 {
		all := walletIntent(wallets, "all-"+w.ID.String(), Debit, Move{From: w.ID, Amount: balance})
		if !v.settle(ctx, replica, all) {
			return fmt.Sprintf("it has %d, and to take them out ended as %s", balance, v.history.last(all.Key))
		}
	}
	more := walletIntent(wallets, oneMore(w), Debit, Move{From: w.ID, Amount: 1})
	if v.settle(ctx, replica, more); v.history.problem(more.Key) != "insufficient-funds" {
		return fmt.Sprintf("all %d were taken out, and 1 more ended as %s", balance, v.history.last(more.Key))
	}
	return ""
}

// trespass lets the owner of one wallet pay himself from another's.
func (v *volley) trespass(ctx context.Context, wallets []Purse, own, other Purse) string {
	i := walletIntent(wallets, "trespass-"+other.ID.String(), Pay, Move{From: other.ID, To: own.ID, Amount: 1})
	i.Client = own.Client
	if v.settle(ctx, 0, i); v.history.problem(i.Key) != "forbidden" {
		return fmt.Sprintf("somebody else's payment from it ended as %s", v.history.last(i.Key))
	}
	return ""
}

// reuse sends the same request for another wallet, under the same key.
func (v *volley) reuse(ctx context.Context, wallets []Purse, decided, other Purse) string {
	again := walletIntent(wallets, "reused-"+other.ID.String(), Debit, Move{From: other.ID, Amount: 1})
	again.Wire = oneMore(decided)
	if v.settle(ctx, 0, again); v.history.problem(again.Key) != keyReused {
		return fmt.Sprintf("a key that was used for wallet %s ended as %s", decided.ID, v.history.last(again.Key))
	}
	return ""
}

// oneMore is the key of the debit that is one too much.
func oneMore(w Purse) string { return "more-" + w.ID.String() }

const keyReused = "idempotency-key-reused"
