// SPDX-License-Identifier: MIT

package pgtx_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
)

// withdraw is an idempotent POST with net/http: it takes money from an account, once for each key.
func withdraw(db *pgtx.DB, client uuid.UUID) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var withdrawal struct{ Account, Amount int64 }
		key, err := idempotency.ParseKey(r.Header.Get("Idempotency-Key"))
		if err = errors.Join(err, json.NewDecoder(r.Body).Decode(&withdrawal)); err != nil || withdrawal.Amount < 1 {
			http.Error(w, "want an Idempotency-Key, an account and an amount", http.StatusBadRequest)
			return
		}
		request := idempotency.Request{Client: client, Key: key, Fingerprint: must(idempotency.Fingerprint("POST /withdrawals", withdrawal))}
		reply, err := db.Do(r.Context(), request, func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
			left, err := pgtx.Select[int64](ctx, tx, `
				UPDATE example_accounts SET balance = balance - $2 WHERE id = $1 AND balance >= $2 RETURNING balance`, withdrawal.Account, withdrawal.Amount)
			if err != nil {
				return idempotency.Reply{}, err
			}
			if len(left) == 0 {
				return pgtx.Refuse(idempotency.Reply{Status: http.StatusConflict, Body: []byte("too little\n")})
			}
			return idempotency.Reply{Status: http.StatusCreated, Body: fmt.Appendln(nil, left[0], "left")}, nil
		})
		switch {
		case errors.Is(err, idempotency.ErrKeyReused):
			http.Error(w, "this key was used for another request", http.StatusUnprocessableEntity)
		case err != nil: // nothing happened, or the outcome is unknown: a retry with the same key is safe in both cases
			http.Error(w, "send the same key again", http.StatusServiceUnavailable)
		default:
			w.WriteHeader(reply.Status)
			_, _ = w.Write(reply.Body)
		}
	}
}

func Example() {
	ctx := context.Background()
	pool := must(pgxpool.NewWithConfig(ctx, must(pgtx.PoolConfig(os.Getenv("SHOP_POSTGRES_URL")))))
	defer pool.Close()
	must(pool.Exec(ctx, `DROP TABLE IF EXISTS example_accounts; CREATE TABLE example_accounts AS SELECT 1::bigint AS id, 100::bigint AS balance`))
	db := must(pgtx.New(pgtx.Config{Pool: pool}))
	must("", db.Read(ctx, pgtx.Migrate))
	handler := withdraw(db, uuid.New())
	for _, sent := range [][2]string{{"k1", "70"}, {"k1", "70"}, {"k1", "7"}, {"k2", "70"}} { // the second is a retry of the first
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/withdrawals", strings.NewReader(`{"account": 1, "amount": `+sent[1]+`}`))
		r.Header.Set("Idempotency-Key", sent[0])
		handler(w, r)
		fmt.Print(sent, " ", w.Code, " ", w.Body)
	}
	// Output:
	// [k1 70] 201 30 left
	// [k1 70] 201 30 left
	// [k1 7] 422 this key was used for another request
	// [k2 70] 409 too little
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
