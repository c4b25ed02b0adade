package wallet

import (
	"context"
	"time"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/wallet"
)

// watch samples all wallets and all entries, at one moment each time.
func watch(ctx context.Context, t *loadtest.Trial) ([]loadtest.Sample, error) {
	return sample(ctx, Of(t).Mongo, t.History.Now)
}

// sample samples a database until ctx ends. An outage of the server is no error, but a gap
// between two samples; the first one, before anything is broken, has to work.
func sample(ctx context.Context, at string, clock func() time.Duration) ([]loadtest.Sample, error) {
	db, err := mongoDatabase(at)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Client().Disconnect(context.WithoutCancel(ctx)) }()
	var samples []loadtest.Sample
	for {
		now := clock()
		all, err := wallet.AddUp(ctx, db, wallet.Openings)
		switch {
		case ctx.Err() != nil:
			return samples, nil
		case err == nil:
			samples = append(samples, loadtest.Sample{At: now, Levels: []loadtest.Level{
				{Name: "balances", Says: all.Says, True: all.True}, {Name: loadtest.DriftLevel, Says: all.Drift}, {Name: "wallets below 0", Says: all.Below},
			}})
		case len(samples) == 0:
			return nil, err
		}
		if !fault.Wait(ctx, loadtest.SampleEvery) {
			return samples, nil
		}
	}
}
