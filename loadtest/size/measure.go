// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// older makes the tables those of the version before their last indexes, as an upgrade finds them.
const older = `
DROP INDEX accounts_by_owner;
DELETE FROM transfer_goose_version WHERE version_id = 4;
DROP INDEX stock_movements_by_time;
ALTER TABLE roll_ups DROP upto_time, DROP upto_id, ADD upto text NOT NULL DEFAULT '';
DELETE FROM inventory_goose_version WHERE version_id >= 6;`

// measure runs each command that an operator types, in an order in which each finds its work.
func (t *table) measure(ctx context.Context) error {
	if _, err := t.conn.Exec(ctx, older); err != nil {
		return err
	}
	for _, c := range []string{"wallet_operations", "wallet_entries"} {
		if err := t.db.Collection(c).Indexes().DropAll(ctx); err != nil {
			return err
		}
	}
	role := t.name + "_clerk"
	if _, err := t.conn.Exec(ctx, "CREATE ROLE "+role); err != nil {
		return err
	}
	defer func() {
		_, _ = t.conn.Exec(context.WithoutCancel(ctx), "DROP OWNED BY "+role+"; DROP ROLE "+role)
	}()
	fmt.Fprintf(t.out, "| command | with %d rows |\n|---|---|\n", t.rows)
	for _, c := range []struct{ args, what string }{
		{"migrate", "`shop migrate` that builds an index of the movements, one of the accounts and four of the wallets"},
		{"migrate --grant-to " + role, "`shop migrate --grant-to`"},
		{"seed", "`shop seed`"},
		{"client list", "`shop client list`"},
		{"audit", "`shop audit`"},
		{"fence-epoch", "`shop fence-epoch` that moves every account"},
		{"fence-epoch", "`shop fence-epoch` again"},
		{"batch", "`shop batch` that adds up a day, and purges a key of each order and a tenth of the operations"},
		{"batch", "`shop batch` again"},
	} {
		begun := time.Now()
		if _, err := t.run(ctx, strings.Fields(c.args)...); err != nil {
			return err
		}
		t.row(c.what, time.Since(begun), "")
	}
	return t.serve(ctx)
}

func (t *table) row(what string, took time.Duration, more string) {
	fmt.Fprintf(t.out, "| %s | %.1f s%s |\n", what, took.Seconds(), more)
}

// serve measures the routes of an operator on a replica.
func (t *table) serve(ctx context.Context) error {
	seeded, err := t.run(ctx, "seed", "--rotate")
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(seeded, "SHOP_KEY_ADMIN=")
	key, _, _ := strings.Cut(rest, "\n")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := free.Addr().String()
	free.Close()
	c := exec.CommandContext(ctx, t.shop, "serve", "--listen", address, "--metrics-listen=")
	c.Env = append(os.Environ(), "SHOP_POSTGRES_URL="+t.postgresURL, "SHOP_MONGO_URL="+t.mongoURL, "SHOP_LOCK_PREFIX="+t.name)
	c.Stderr = t.progress
	begun := time.Now()
	if err := c.Start(); err != nil {
		return err
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	for status := 0; status != http.StatusOK; {
		if status, err = get(ctx, "http://"+address+"/readyz", key); err != nil && time.Since(begun) > time.Minute {
			return fmt.Errorf("shop serve is not ready after a minute: %w", err)
		}
	}
	t.row("`shop serve`, until it is ready", time.Since(begun), "")
	begun = time.Now()
	status, err := get(ctx, "http://"+address+"/v1/audit", key)
	if err != nil {
		return err
	}
	if status != http.StatusOK && status != http.StatusServiceUnavailable {
		return fmt.Errorf("GET /v1/audit: %d", status)
	}
	t.row("`GET /v1/audit`", time.Since(begun), fmt.Sprintf(", status %d", status))
	return nil
}

// get returns the status of an answer.
func get(ctx context.Context, url, key string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, errors.Join(err, ctx.Err())
	}
	return res.StatusCode, res.Body.Close()
}
