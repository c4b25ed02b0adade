// SPDX-License-Identifier: MIT

// Command size fills PostgreSQL and MongoDB with rows, and prints how long each command takes that docs/operations.md
// names. It uses a schema and a database of its own, and drops them afterwards. The role of SHOP_POSTGRES_URL must be a
// superuser: the seeds skip the triggers of foreign keys.
package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"shop/wallet"
)

func main() {
	var rows int
	flag.IntVar(&rows, "rows", 3_000_000, "orders, accounts, transfers, clients, and operations of wallets; at least 1000")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, rows, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

// commands are what an operator types, in an order in which each finds its work.
var commands = []struct{ args, what string }{
	{"migrate", "`shop migrate` that builds an index of the movements, one of the accounts and four of the wallets"},
	{"migrate --grant-to CLERK", "`shop migrate --grant-to`"},
	{"seed", "`shop seed`"},
	{"client list", "`shop client list`"},
	{"audit", "`shop audit`"},
	{"fence-epoch", "`shop fence-epoch` that moves every account"},
	{"fence-epoch", "`shop fence-epoch` again"},
	{"batch", "`shop batch` that adds up a day, and purges a key of each order and a tenth of the operations"},
	{"batch", "`shop batch` again"},
}

func run(ctx context.Context, rows int, out io.Writer) error {
	if rows < 1000 {
		return errors.New("--rows must be at least 1000")
	}
	s, err := open(ctx)
	if err != nil {
		return fmt.Errorf("%w; make size starts the servers", err)
	}
	defer s.drop()
	err = s.shop(ctx, "migrate")
	if err == nil {
		err = seed(ctx, s.conn, s.db, rows)
	}
	if err == nil {
		err = s.age(ctx)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "| command | with %d rows |\n|---|---|\n", rows)
	for _, c := range commands {
		begun := time.Now()
		if err := s.shop(ctx, strings.ReplaceAll(c.args, "CLERK", s.name)); err != nil {
			return err
		}
		fmt.Fprintf(out, "| %s | %.1f s |\n", c.what, time.Since(begun).Seconds())
	}
	return nil
}

// stores are a schema, a role and a database of MongoDB of this run alone.
type stores struct {
	name string // of all three
	env  []string
	conn *pgx.Conn
	db   *mongo.Database
}

func open(ctx context.Context) (*stores, error) {
	s := &stores{name: "size_" + strings.ToLower(rand.Text()[:8])}
	p, wrongPostgres := url.Parse(os.Getenv("SHOP_POSTGRES_URL"))
	m, wrongMongo := url.Parse(os.Getenv("SHOP_MONGO_URL"))
	if wrongPostgres != nil || wrongMongo != nil || p.Host == "" || m.Host == "" {
		return nil, errors.New("SHOP_POSTGRES_URL or SHOP_MONGO_URL is not a URL")
	}
	query := p.Query()
	query.Set("search_path", s.name)
	p.RawQuery, m.Path = query.Encode(), "/"+s.name
	s.env = append(os.Environ(), "SHOP_POSTGRES_URL="+p.String(), "SHOP_MONGO_URL="+m.String(), "SHOP_LOCK_PREFIX="+s.name)
	o, err := wallet.ClientOptions(m.String())
	if err != nil {
		return nil, err
	}
	client, err := mongo.Connect(o)
	if err != nil {
		return nil, err
	}
	s.db = client.Database(s.name)
	// How long MongoDB keeps a snapshot is the default; compose/local has less.
	window := bson.D{{Key: "setParameter", Value: 1}, {Key: "minSnapshotHistoryWindowInSeconds", Value: 300}}
	if err := client.Database("admin").RunCommand(ctx, window).Err(); err != nil {
		return nil, err
	}
	if s.conn, err = pgx.Connect(ctx, p.String()); err != nil {
		return nil, err
	}
	_, err = s.conn.Exec(ctx, "CREATE SCHEMA "+s.name+"; CREATE ROLE "+s.name)
	return s, err
}

// age makes the tables those of the version before their last indexes, as an upgrade finds them.
func (s *stores) age(ctx context.Context) error {
	_, err := s.conn.Exec(ctx, `
DROP INDEX accounts_by_owner;
DELETE FROM transfer_goose_version WHERE version_id = 4;
DROP INDEX stock_movements_by_time;
ALTER TABLE roll_ups DROP upto_time, DROP upto_id, ADD upto text NOT NULL DEFAULT '';
DELETE FROM inventory_goose_version WHERE version_id >= 6;`)
	return errors.Join(err,
		s.db.Collection("wallet_operations").Indexes().DropAll(ctx),
		s.db.Collection("wallet_entries").Indexes().DropAll(ctx))
}

// drop removes everything, after a signal too.
func (s *stores) drop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := s.conn.Exec(ctx, "DROP SCHEMA "+s.name+" CASCADE; DROP OWNED BY "+s.name+"; DROP ROLE "+s.name)
	if err := errors.Join(err, s.conn.Close(ctx), s.db.Drop(ctx), s.db.Client().Disconnect(ctx)); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
	}
}

// shop runs a command.
func (s *stores) shop(ctx context.Context, args string) error {
	c := exec.CommandContext(ctx, "bin/shop", strings.Fields(args)...)
	c.Env = s.env
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("shop %s: %w\n%s", args, err, out)
	}
	return nil
}

var (
	//go:embed inventory.sql
	inventorySQL string
	//go:embed transfer.sql
	transferSQL string
)

// seedPage is how many operations a wallet has. They are inserted at a time; a tenth of them are refusals.
const seedPage = 1000

// seed fills the tables and the collections. Everything is older than a key is kept, and every invariant holds.
func seed(ctx context.Context, conn *pgx.Conn, db *mongo.Database, rows int) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Hour) // in place of the client's limit, which is that of a request
	defer cancel()
	stores, ctx := errgroup.WithContext(ctx)
	stores.SetLimit(5) // PostgreSQL, and four wallets
	stores.Go(func() error {
		sql := strings.ReplaceAll(inventorySQL+transferSQL, "{{rows}}", strconv.Itoa(rows))
		if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			return fmt.Errorf("seed PostgreSQL: %w", err)
		}
		_, err := conn.Exec(ctx, "VACUUM ANALYZE")
		return err
	})
	for range rows / seedPage {
		stores.Go(func() error { return seedWallet(ctx, db) })
	}
	return stores.Wait()
}

func seedWallet(ctx context.Context, db *mongo.Database) error {
	id, client, at := uuid.New(), uuid.New(), time.Now().Add(-3*24*time.Hour)
	var operations, entries []bson.M
	for i := range seedPage {
		o := bson.M{
			"_id": uuid.New(), "client": client, "key": strconv.Itoa(i), "fingerprint": make([]byte, 32), "kind": wallet.Credit,
			"wallet": id, "amount": int64(1), "bonus": int64(0), "status": 201, "body": []byte("{}"), "createdAt": at,
		}
		if i < seedPage/10 {
			o["kind"], o["status"], o["refused"] = wallet.Debit, 409, "insufficient-funds"
		} else {
			entries = append(entries, bson.M{"_id": bson.NewObjectID(), "operation": o["_id"], "wallet": id, "delta": int64(1), "createdAt": at})
		}
		operations = append(operations, o)
	}
	owned := bson.M{
		"_id": id, "owner": client, "currency": "EUR", "opening": int64(0), "balance": int64(len(entries)),
		"lockId": bson.NewObjectID(), "createdAt": at, "updatedAt": at,
	}
	unordered := options.InsertMany().SetOrdered(false)
	_, err := db.Collection("wallets").InsertOne(ctx, owned)
	if err == nil {
		_, err = db.Collection("wallet_entries").InsertMany(ctx, entries, unordered)
	}
	if err == nil {
		_, err = db.Collection("wallet_operations").InsertMany(ctx, operations, unordered)
	}
	if err != nil {
		return fmt.Errorf("seed MongoDB: %w", err)
	}
	return nil
}
