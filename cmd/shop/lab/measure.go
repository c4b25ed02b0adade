// SPDX-License-Identifier: MIT

package lab

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/etcdlock"
	"shop/locking/filelock"
	"shop/locking/idempotency/pgtx"
	"shop/locking/mongolock"
	"shop/locking/pglock"
	"shop/locking/redislock"
	"shop/locking/redisqueue"
)

const (
	measureTime = time.Second
	measureWait = 4 * time.Second // more, to connect, to make tables, and for the last operation
	measureTTL  = 5 * time.Second // of the leases: etcd rounds no TTL of whole seconds
	measuredKey = "lab/patterns"
)

// measurement takes and releases one lock, which no other client wants, again and again. Of a guard it measures the
// transaction or the script that it is the first statement of, of a pattern behind the lock a piece of work.
type measurement struct {
	Name  string
	Row   string // of docs/patterns.md: the number of the pattern, or its title if it has none
	Store string
	open  func(context.Context, Config) (subject, error)
}

// subject is a lock that can be measured, with connections, keys and tables of its own.
type subject struct {
	once   func(context.Context) error // takes and releases it
	close  func()
	before func(context.Context) error // each once, and is not measured; nil: nothing
}

var measurements = []measurement{
	{"advisory", "A1", "PostgreSQL", transaction(pglock.XactLock)},
	{"session", "A2", "PostgreSQL", inPostgres(func(pool *pgxpool.Pool) (*driver.Store, error) {
		return pglock.NewSessions(pool, pglock.Options{Prefix: "shop lab "})
	})},
	{"advisory-row", "A3", "PostgreSQL", transaction(func(ctx context.Context, tx pglock.Tx, _ string) error {
		return pglock.XactLockRow(ctx, tx, "lock_rows", 1)
	})},
	{"advisory-within", "A4", "PostgreSQL", transaction(func(ctx context.Context, tx pglock.Tx, key string) error {
		return pglock.XactLockWithin(ctx, tx, key, time.Second)
	})},
	{"row", "A6", "PostgreSQL", transaction(pglock.LockRow)},
	{"table", "A7", "PostgreSQL", inPostgres(func(pool *pgxpool.Pool) (*driver.Store, error) {
		return pglock.New(pool, measureTTL, pglock.Options{})
	})},
	{"try-lease", "A8", "PostgreSQL", openTryLease},
	{"insert-row", "A9", "PostgreSQL", transaction(func(ctx context.Context, tx pglock.Tx, key string) error {
		if err := pglock.MakeRow(ctx, tx, key); err != nil { // there is one already
			return err
		}
		return pglock.LockRow(ctx, tx, key)
	})},
	{"file", "A10", "the folder for temporary files", openFile},
	{"for-update", "B3", "MongoDB", openForUpdate},
	{"increment", "B4", "MongoDB", openIncrement},
	{"mongo", "Lease in a document", "MongoDB", openMongo},
	{"several", "C3", "Redis", inRedis(func(c redis.UniversalClient, ttl time.Duration, o redislock.Options) (pair, error) {
		s, err := redislock.New(c, ttl, o)
		return pair{s}, err
	})},
	{"redis", "C4", "Redis", inRedis(redislock.New)},
	{"release", "C7", "Redis", partOfRedis(redislock.New, releaseAlone)},
	{"renew", "C8", "Redis", partOfRedis(redislock.New, renewAlone)},
	{"fair", "C14", "Redis", inRedis(redisqueue.NewFair)},
	{"rw", "C15", "Redis", inRedis(func(c redis.UniversalClient, ttl time.Duration, o redislock.Options) (*driver.Store, error) {
		rw, err := redisqueue.NewRW(c, ttl, o)
		if err != nil {
			return nil, err
		}
		return rw.Write, nil
	})},
	{"semaphore", "C16", "Redis", inRedis(func(c redis.UniversalClient, ttl time.Duration, o redislock.Options) (*driver.Store, error) {
		return redisqueue.NewSemaphore(c, ttl, 2, o)
	})},
	{"watch", "C17", "Redis", onKey(updateKey)},
	{"queue", "C18", "this process", openQueue},
	{"etcd", "D1", "etcd", openEtcd},
	{"fenced-transfer", "D4", "PostgreSQL or etcd", openTransfer},
	{"guard-postgres", "E1", "PostgreSQL", transaction(func(ctx context.Context, tx pglock.Tx, key string) error {
		return pglock.Guard(ctx, tx, key, 1)
	})},
	{"guard-mongo", "Guard in MongoDB", "MongoDB", openMongoGuard},
	{"guard-redis", "Guard in Redis", "Redis", onKey(guardKey)},
	{"combined", "E2", "Redis", partOfRedis(redislock.New, combined)},
	{"idempotent", "E4", "PostgreSQL", openIdempotent},
	{"slots", "E6", "PostgreSQL", openSlots},
}

// measured is what a measurement found.
type measured struct {
	Median    float64 `json:"median_us"` // microseconds to take and release the lock
	PerSecond float64 `json:"per_second"`
	Count     int     `json:"count"`
}

// run measures for at least the time.
func (m measurement) run(ctx context.Context, cfg Config, least time.Duration) (measured, error) {
	s, err := m.open(ctx, cfg)
	if err != nil {
		return measured{}, err
	}
	defer s.close()
	if _, err := s.timed(ctx); err != nil { // the first one connects, and loads scripts
		return measured{}, err
	}
	var took []time.Duration
	var total time.Duration
	for begin := time.Now(); len(took) == 0 || time.Since(begin) < least; {
		one, err := s.timed(ctx)
		if err != nil {
			return measured{}, err
		}
		took, total = append(took, one), total+one
	}
	slices.Sort(took)
	median := took[len(took)/2]
	return measured{float64(median.Nanoseconds()) / 1000, round(float64(len(took)) / total.Seconds()), len(took)}, nil
}

// timed runs the subject once.
func (s subject) timed(ctx context.Context) (time.Duration, error) {
	if s.before != nil {
		if err := s.before(ctx); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	err := s.once(ctx)
	return time.Since(start), err
}

// ofStore is a subject that takes and releases leases.
func ofStore(s locking.Store, close func()) subject {
	return subject{once: func(ctx context.Context) error {
		lease, err := s.TryAcquire(ctx, measuredKey)
		if err != nil {
			return err
		}
		return s.Release(ctx, lease)
	}, close: close}
}

// openTables makes the tables of package pglock in a schema of the lab. They stay.
func openTables(ctx context.Context, cfg Config) (*pgxpool.Pool, error) {
	tablesURL, err := makeLockSchema(ctx, cfg.PostgresURL)
	if err != nil {
		return nil, err
	}
	pool, err := smallPool(ctx, tablesURL)
	if err != nil {
		return nil, err
	}
	err = pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return pglock.Migrate(ctx, c.Conn()) })
	if err == nil {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return pglock.MakeRow(ctx, tx, measuredKey) })
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// makeLockSchema makes a schema beside that of databaseURL, and returns a URL with it.
func makeLockSchema(ctx context.Context, databaseURL string) (string, error) {
	pool, err := smallPool(ctx, databaseURL)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	var schema string
	if err := pool.QueryRow(ctx, `SELECT current_schema() || '_patterns'`).Scan(&schema); err != nil {
		return "", err
	}
	if len(schema) > nameMax { // PostgreSQL would cut it off
		return "", fmt.Errorf("lab: the schema %s would have a name of more than %d bytes", schema, nameMax)
	}
	schema = pgx.Identifier{schema}.Sanitize()
	if _, err := pool.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS `+schema); err != nil {
		return "", fmt.Errorf("a measurement makes a schema of its own: %w", err)
	}
	return withSchema(databaseURL, schema)
}

// smallPool opens a pool for one lock: a session holds one connection, and needs another one.
func smallPool(ctx context.Context, databaseURL string) (*pgxpool.Pool, error) {
	config, err := pgtx.PoolConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 2
	return pgxpool.NewWithConfig(ctx, config)
}

// transaction measures a lock of a transaction, together with its BEGIN and COMMIT.
func transaction(lock func(context.Context, pglock.Tx, string) error) func(context.Context, Config) (subject, error) {
	return func(ctx context.Context, cfg Config) (subject, error) {
		pool, err := openTables(ctx, cfg)
		if err != nil {
			return subject{}, err
		}
		return subject{once: func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return lock(ctx, tx, measuredKey) })
		}, close: pool.Close}, nil
	}
}

// closingStore is a store with connections.
type closingStore interface {
	locking.Store
	Close()
}

func inPostgres[S closingStore](open func(*pgxpool.Pool) (S, error)) func(context.Context, Config) (subject, error) {
	return func(ctx context.Context, cfg Config) (subject, error) {
		pool, err := openTables(ctx, cfg)
		if err != nil {
			return subject{}, err
		}
		store, err := open(pool)
		if err != nil {
			pool.Close()
			return subject{}, err
		}
		return ofStore(store, func() {
			store.Close()
			pool.Close()
		}), nil
	}
}

// pair is a store that takes another key together with each.
type pair struct{ *driver.Store }

func (p pair) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	return p.Store.TryAcquire(ctx, append(keys, measuredKey+"/2")...)
}

func openQueue(context.Context, Config) (subject, error) {
	var l locking.Line[string]
	return subject{once: func(ctx context.Context) error {
		place, err := l.Enter(ctx, nil, measuredKey)
		if err == nil {
			place.Leave()
		}
		return err
	}, close: func() {}}, nil
}

func openFile(context.Context, Config) (subject, error) {
	dir, err := os.MkdirTemp("", "shop-lab-")
	if err != nil {
		return subject{}, err
	}
	store, err := filelock.New(dir)
	if err != nil {
		_ = os.RemoveAll(dir)
		return subject{}, err
	}
	return ofStore(store, func() { _ = os.RemoveAll(dir) }), nil
}

func inRedis[S closingStore](open func(redis.UniversalClient, time.Duration, redislock.Options) (S, error)) func(context.Context, Config) (subject, error) {
	return partOfRedis(open, func(_ context.Context, store S) (subject, error) { return ofStore(store, func() {}), nil })
}

// partOfRedis measures what part makes of a store. The subject of part does not close the store.
func partOfRedis[S closingStore](
	open func(redis.UniversalClient, time.Duration, redislock.Options) (S, error), part func(context.Context, S) (subject, error),
) func(context.Context, Config) (subject, error) {
	return func(ctx context.Context, cfg Config) (subject, error) {
		client, err := redislock.Connect(cfg.RedisURL, measureTTL)
		if err != nil {
			return subject{}, err
		}
		store, err := open(client, measureTTL, redislock.Options{Prefix: cfg.LockPrefix + "-patterns"})
		if err != nil {
			_ = client.Close()
			return subject{}, err
		}
		one, err := part(ctx, store)
		closePart := one.close
		one.close = func() {
			closePart()
			store.Close()
			_ = client.Close()
		}
		if err != nil {
			one.close()
		}
		return one, err
	}
}

func openEtcd(ctx context.Context, cfg Config) (subject, error) {
	client, err := etcdClient(cfg, &link{})
	if err != nil {
		return subject{}, err
	}
	store, err := etcdlock.New(ctx, client, measureTTL, etcdlock.Options{Prefix: cfg.LockPrefix + "-patterns"})
	if err != nil {
		_ = client.Close()
		return subject{}, err
	}
	return ofStore(store, func() {
		store.Close()
		_ = client.Close()
	}), nil
}

func openMongo(ctx context.Context, cfg Config) (subject, error) {
	client, name, err := mongoClient(cfg, nil)
	if err != nil {
		return subject{}, err
	}
	store, err := mongolock.New(client.Database(name).Collection("lab_patterns"), measureTTL, mongolock.Options{})
	if err != nil {
		_ = client.Disconnect(ctx)
		return subject{}, err
	}
	return ofStore(store, func() {
		store.Close()
		_ = client.Disconnect(context.WithoutCancel(ctx))
	}), nil
}
