// SPDX-License-Identifier: MIT

// Command size fills PostgreSQL and MongoDB with rows, and prints how long each command takes that docs/operations.md
// names. It uses a schema and a database of its own, and drops them afterwards. The role of SHOP_POSTGRES_URL must be a
// superuser: the seeds skip the triggers of foreign keys.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/wallet"
)

type settings struct {
	rows int
	shop string
}

func main() {
	var s settings
	flag.IntVar(&s.rows, "rows", 3_000_000, "orders, accounts, transfers, clients, and operations of wallets; at least 1000")
	flag.StringVar(&s.shop, "shop", "bin/shop", "the program")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings, out, progress io.Writer) (err error) {
	for _, name := range []string{"SHOP_POSTGRES_URL", "SHOP_REDIS_URL", "SHOP_ETCD_ENDPOINTS", "SHOP_MONGO_URL"} {
		if os.Getenv(name) == "" {
			return fmt.Errorf("%s is not set: start the servers with make size", name)
		}
	}
	if s.rows < 1000 {
		return errors.New("--rows must be at least 1000")
	}
	if s.shop, err = filepath.Abs(s.shop); err != nil {
		return err
	}
	st, err := openStores(ctx, os.Getenv("SHOP_POSTGRES_URL"), os.Getenv("SHOP_MONGO_URL"))
	if err != nil {
		return err
	}
	defer st.drop()
	t := table{settings: s, stores: st, out: out, progress: progress}
	if _, err := t.run(ctx, "migrate"); err != nil {
		return err
	}
	begun := time.Now()
	if err := st.seed(ctx, s.rows); err != nil {
		return err
	}
	fmt.Fprintf(progress, "size: %d rows seeded in %.0f s\n", s.rows, time.Since(begun).Seconds())
	return t.measure(ctx)
}

// stores are a schema and a database of MongoDB of this run alone.
type stores struct {
	name        string
	postgresURL string
	mongoURL    string
	conn        *pgx.Conn
	db          *mongo.Database
	window      any // of MongoDB's snapshots, before the run
}

func openStores(ctx context.Context, postgresURL, mongoURL string) (*stores, error) {
	s := &stores{name: "size_" + strings.ToLower(rand.Text()[:8])}
	p, err := url.Parse(postgresURL)
	if err != nil {
		return nil, errors.New("SHOP_POSTGRES_URL is not a URL")
	}
	query := p.Query()
	query.Set("search_path", s.name)
	p.RawQuery = query.Encode()
	m, err := url.Parse(mongoURL)
	if err != nil {
		return nil, errors.New("SHOP_MONGO_URL is not a URL")
	}
	m.Path = "/" + s.name
	s.postgresURL, s.mongoURL = p.String(), m.String()
	if s.conn, err = pgx.Connect(ctx, s.postgresURL); err != nil {
		return nil, err
	}
	if _, err := s.conn.Exec(ctx, "CREATE SCHEMA "+s.name); err != nil {
		return nil, err
	}
	o, err := wallet.ClientOptions(s.mongoURL)
	if err != nil {
		return nil, err
	}
	client, err := mongo.Connect(o)
	if err != nil {
		return nil, err
	}
	s.db = client.Database(s.name)
	get := bson.D{{Key: "getParameter", Value: 1}, {Key: snapshotWindow, Value: 1}}
	var had bson.M
	if err := client.Database("admin").RunCommand(ctx, get).Decode(&had); err != nil {
		return nil, err
	}
	s.window = had[snapshotWindow]
	return s, s.keepSnapshots(ctx, 300) // the default; compose/local has less
}

const snapshotWindow = "minSnapshotHistoryWindowInSeconds"

// keepSnapshots sets how long MongoDB keeps a snapshot, in seconds.
func (s *stores) keepSnapshots(ctx context.Context, seconds any) error {
	set := bson.D{{Key: "setParameter", Value: 1}, {Key: snapshotWindow, Value: seconds}}
	return s.db.Client().Database("admin").RunCommand(ctx, set).Err()
}

// drop removes everything, after a signal too.
func (s *stores) drop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, _ = s.conn.Exec(ctx, "DROP SCHEMA "+s.name+" CASCADE")
	_ = s.conn.Close(ctx)
	_ = s.db.Drop(ctx)
	_ = s.keepSnapshots(ctx, s.window)
	_ = s.db.Client().Disconnect(ctx)
}

// table runs the commands, and prints a row for each.
type table struct {
	settings
	*stores
	out, progress io.Writer
}

// run runs a command of the shop, and returns what it has printed.
func (t *table) run(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, t.shop, args...)
	c.Env = append(os.Environ(), "SHOP_POSTGRES_URL="+t.postgresURL, "SHOP_MONGO_URL="+t.mongoURL, "SHOP_LOCK_PREFIX="+t.name)
	var out strings.Builder
	c.Stdout, c.Stderr = &out, io.MultiWriter(&out, t.progress)
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("shop %s: %w\n%s", strings.Join(args, " "), err, out.String())
	}
	return out.String(), nil
}
