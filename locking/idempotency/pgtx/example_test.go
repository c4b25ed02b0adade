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
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
)

// withdraw is POST /withdrawals: it takes money from an account, once for each key.
func withdraw(db *pgtx.DB, client uuid.UUID) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Account, Amount int64 }
		key, err := idempotency.ParseKey(r.Header.Get("Idempotency-Key"))
		if err = errors.Join(err, json.NewDecoder(r.Body).Decode(&body)); err != nil || body.Amount < 1 {
			http.Error(w, "want an Idempotency-Key, an account and an amount", http.StatusBadRequest)
			return
		}
		fingerprint, err := idempotency.Fingerprint("POST /withdrawals", body)
		if err != nil {
			http.Error(w, "internal error", http.StatusInternalServerError)
			return
		}
		req := idempotency.Request{Client: client, Key: key, Fingerprint: fingerprint}
		reply, err := db.Do(r.Context(), req, func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
			balance, err := pgtx.Select[int64](ctx, tx, `SELECT balance FROM example_accounts WHERE id = $1 FOR UPDATE`, body.Account)
			switch {
			case err != nil:
				return idempotency.Reply{}, err
			case len(balance) == 0 || balance[0] < body.Amount:
				return pgtx.Refuse(idempotency.Reply{Status: http.StatusConflict, Body: []byte("too little\n")})
			}
			tx.Exec(`UPDATE example_accounts SET balance = balance - $2 WHERE id = $1`, body.Account, body.Amount)
			return idempotency.Reply{Status: http.StatusCreated, Body: fmt.Appendf(nil, "%d left\n", balance[0]-body.Amount)}, nil
		})
		switch {
		case errors.Is(err, idempotency.ErrKeyReused):
			http.Error(w, "this key was used for another request", http.StatusUnprocessableEntity)
		case errors.Is(err, locking.ErrOutcomeUnknown), errors.Is(err, idempotency.ErrInProgress):
			http.Error(w, "it may have happened: send the same key again", http.StatusServiceUnavailable)
		case err != nil:
			http.Error(w, "nothing happened: send the same key again", http.StatusServiceUnavailable)
		default:
			w.WriteHeader(reply.Status)
			_, _ = w.Write(reply.Body)
		}
	}
}

// An idempotent POST with net/http. The second request has the first one's key.
func Example() {
	ctx := context.Background()
	cfg, err := pgtx.PoolConfig(os.Getenv("SHOP_POSTGRES_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	db, _ := pgtx.New(pgtx.Config{Pool: pool})
	if err := db.Read(ctx, func(ctx context.Context, conn *pgx.Conn) error { return pgtx.Migrate(ctx, conn) }); err != nil {
		fmt.Println(err)
		return
	}
	_, _ = pool.Exec(ctx, `DROP TABLE IF EXISTS example_accounts; CREATE TABLE example_accounts AS SELECT 1::bigint AS id, 100::bigint AS balance`)
	handler := withdraw(db, uuid.New())
	for _, request := range [][2]string{
		{"k1", `{"account": 1, "amount": 70}`},
		{"k1", `{"account": 1, "amount": 70}`},
		{"k1", `{"account": 1, "amount": 7}`},
		{"k2", `{"account": 1, "amount": 70}`},
	} {
		r := httptest.NewRequest(http.MethodPost, "/withdrawals", strings.NewReader(request[1]))
		r.Header.Set("Idempotency-Key", request[0])
		w := httptest.NewRecorder()
		handler(w, r)
		fmt.Println(request[0], w.Code, strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// k1 201 30 left
	// k1 201 30 left
	// k1 422 this key was used for another request
	// k2 409 too little
}
