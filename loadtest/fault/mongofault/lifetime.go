package mongofault

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/loadtest/fault"
)

const lifetimeLimit = "transactionLifetimeLimitSeconds"

// Lifetime sets for how long all members keep a transaction whose client is
// silent: the locks of one that was stopped, or has died, are there until then.
// A member that is started again has forgotten it; PrimaryKill reminds the one it starts.
func Lifetime(ctx context.Context, set Set, seconds int) error {
	for _, m := range set {
		if err := setLifetime(ctx, m, seconds); err != nil {
			return err
		}
	}
	return nil
}

func setLifetime(ctx context.Context, m Member, seconds int) error {
	_, err := command(ctx, m.Addr, "admin", bson.D{{Key: "setParameter", Value: 1}, {Key: lifetimeLimit, Value: seconds}})
	return err
}

func lifetimeOf(ctx context.Context, m Member) (seconds int, err error) {
	answer, err := command(ctx, m.Addr, "admin", bson.D{{Key: "getParameter", Value: 1}, {Key: lifetimeLimit, Value: 1}})
	n, _ := answer.Lookup(lifetimeLimit).AsInt64OK()
	return int(n), err
}

// Abandoned tells whether a transaction is open at the primary whose client has
// been silent for a while. It looks until one must have been, if there is one.
func Abandoned(ctx context.Context, set Set, silent time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, undoWait)
	defer cancel()
	fault.Wait(ctx, silent)
	primary, _, err := set.primary(ctx, 0)
	if err != nil {
		return false
	}
	answer, err := command(ctx, primary.Addr, "admin", bson.D{
		{Key: "aggregate", Value: 1},
		{Key: "pipeline", Value: bson.A{
			bson.D{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: true}, {Key: "idleSessions", Value: true}}}},
			bson.D{{Key: "$match", Value: bson.D{
				{Key: "type", Value: "idleSession"},
				{Key: "transaction.timeInactiveMicros", Value: bson.D{{Key: "$gte", Value: silent.Microseconds() / 2}}},
			}}},
			bson.D{{Key: "$limit", Value: 1}},
		}},
		{Key: "cursor", Value: bson.D{}},
	})
	found, _ := answer.Lookup("cursor", "firstBatch").ArrayOK()
	values, _ := found.Values()
	return err == nil && len(values) > 0
}
