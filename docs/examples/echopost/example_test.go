// SPDX-License-Identifier: MIT

// Package echopost_test is an example to copy: an idempotent POST with echo, whose work is in a repository that has a pgx.Tx.
package echopost_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
)

type order struct {
	SKU   string `json:"sku"`
	Units int64  `json:"units"`
}

// take is a repository, as a service has it already. Its update locks the row.
func take(ctx context.Context, tx pgx.Tx, o order) (left int64, err error) {
	err = tx.QueryRow(ctx, `UPDATE example_stock SET units = units - $2 WHERE sku = $1 AND units >= $2 RETURNING units`, o.SKU, o.Units).Scan(&left)
	return left, err
}

func post(db *pgtx.DB, client uuid.UUID) echo.HandlerFunc {
	return func(c echo.Context) error {
		var o order
		key, err := idempotency.ParseKey(c.Request().Header.Get("Idempotency-Key"))
		if err = errors.Join(err, c.Bind(&o)); err != nil || o.Units < 1 {
			return echo.NewHTTPError(http.StatusBadRequest, "want an Idempotency-Key, a sku and units")
		}
		request := idempotency.Request{Client: client, Key: key, Fingerprint: must(idempotency.Fingerprint("POST /orders", o))}
		reply, err := db.Do(c.Request().Context(), request, func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
			conn, err := tx.Pgx(ctx)
			if err != nil {
				return idempotency.Reply{}, err
			}
			left, err := take(ctx, conn, o)
			switch {
			case errors.Is(err, pgx.ErrNoRows):
				return pgtx.Refuse(idempotency.Reply{Status: http.StatusConflict, Body: []byte(`{"error":"sold out"}`)})
			case err != nil:
				return idempotency.Reply{}, err // as it is: a lost race is repeated
			}
			return idempotency.Reply{
				Status: http.StatusCreated, Body: fmt.Appendf(nil, `{"left":%d}`, left),
				Header: map[string]string{echo.HeaderLocation: "/orders/" + uuid.NewString()},
			}, nil
		})
		switch {
		case errors.Is(err, idempotency.ErrKeyReused):
			return echo.NewHTTPError(http.StatusUnprocessableEntity, "this key was used for another request")
		case err != nil: // nothing happened, or the outcome is unknown: the same key is safe in both cases
			return echo.NewHTTPError(http.StatusServiceUnavailable, "send the same key again")
		}
		for name, value := range reply.Header {
			c.Response().Header().Set(name, value)
		}
		return c.JSONBlob(reply.Status, reply.Body)
	}
}

func Example() {
	ctx := context.Background()
	pool := must(pgxpool.NewWithConfig(ctx, must(pgtx.PoolConfig(os.Getenv("SHOP_POSTGRES_URL")))))
	defer pool.Close()
	must(pool.Exec(ctx, `DROP TABLE IF EXISTS example_stock; CREATE TABLE example_stock AS SELECT 'tea' AS sku, 5::bigint AS units`))
	db := must(pgtx.New(pgtx.Config{Pool: pool}))
	must("", db.Read(ctx, pgtx.Migrate))
	e, client, locations := echo.New(), uuid.New(), map[string]int{}
	e.POST("/orders", post(db, client))
	for _, sent := range [][2]string{{"k1", "3"}, {"k1", "3"}, {"k2", "3"}} { // the second is a retry of the first
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"sku": "tea", "units": `+sent[1]+`}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", sent[0])
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		locations[w.Header().Get(echo.HeaderLocation)]++
		fmt.Println(sent, w.Code, w.Body)
	}
	fmt.Println(len(locations), "locations, none for the refusal:", locations[""] == 1)
	// Output:
	// [k1 3] 201 {"left":2}
	// [k1 3] 201 {"left":2}
	// [k2 3] 409 {"error":"sold out"}
	// 2 locations, none for the refusal: true
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
