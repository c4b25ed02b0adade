// SPDX-License-Identifier: MIT

package wrong

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// CreditOnce adds amount to a wallet in a transaction that is not repeated. Of two writers of one document MongoDB aborts the
// second, with WriteConflict, instead of letting it wait: StartTransaction leaves it to the caller to begin again, and
// WithTransaction does it. work is what happens between the read and the write.
func CreditOnce(ctx context.Context, wallets *mongo.Collection, id string, amount int64, work func()) error {
	session, err := wallets.Database().Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	if err := session.StartTransaction(); err != nil {
		return err
	}
	ctx = mongo.NewSessionContext(ctx, session)
	var w struct{ Balance int64 }
	if err = wallets.FindOne(ctx, bson.M{"_id": id}).Decode(&w); err == nil {
		work()
		_, err = wallets.UpdateByID(ctx, id, bson.M{"$set": bson.M{"balance": w.Balance + amount}})
	}
	if err != nil {
		_ = session.AbortTransaction(ctx)
		return err
	}
	return session.CommitTransaction(ctx)
}
