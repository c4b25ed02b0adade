package loadtest

import (
	"context"
	"time"

	"shop/loadtest/fault"
	"shop/wallet"
)

// watchWallets looks at all wallets and all entries, at one moment each time.
// That the server goes away for a while is no error, but a gap between two
// samples; the first look, before anything is broken, has to work.
func watchWallets(ctx context.Context, stores Stores, clock func() time.Duration) ([]Sample, error) {
	db, err := mongoDatabase(stores.Mongo)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Client().Disconnect(context.WithoutCancel(ctx)) }()
	var samples []Sample
	for {
		at := clock()
		all, err := wallet.AddUp(ctx, db, wallet.Openings)
		switch {
		case ctx.Err() != nil:
			return samples, nil
		case err == nil:
			samples = append(samples, Sample{At: at, Levels: []Level{
				{"balances", all.Says, all.True}, {driftLevel, all.Drift, 0}, {"wallets below 0", all.Below, 0},
			}})
		case len(samples) == 0:
			return nil, err
		}
		if !fault.Wait(ctx, sampleEvery) {
			return samples, nil
		}
	}
}
