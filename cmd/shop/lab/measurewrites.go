// SPDX-License-Identifier: MIT

package lab

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking/mongolock"
	"shop/locking/redislock"
)

// onKey measures a write to a key of Redis. It removes what the write needs when it ends.
func onKey(write func(ctx context.Context, client redis.UniversalClient, key string) error) func(context.Context, Config) (subject, error) {
	return func(ctx context.Context, cfg Config) (subject, error) {
		client, err := redislock.Connect(cfg.RedisURL, measureTTL)
		if err != nil {
			return subject{}, err
		}
		key := cfg.LockPrefix + "-patterns:" + measuredKey
		return subject{once: func(ctx context.Context) error { return write(ctx, client, key) }, close: func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = client.Del(ctx, key, key+"/guard").Err() // if it fails, the next measurement uses them again
			_ = client.Close()
		}}, nil
	}
}

func updateKey(ctx context.Context, client redis.UniversalClient, key string) error {
	return redislock.Update(ctx, client, redislock.UpdateOptions{}, []string{key}, func(ctx context.Context, tx *redis.Tx) (func(redis.Pipeliner), error) {
		n, err := tx.Exists(ctx, key).Result()
		return func(p redis.Pipeliner) { p.Set(ctx, key, n, 0) }, err
	})
}

var guardedWrite = redislock.NewGuard(`return redis.call('SET', KEYS[1], ARGV[1])`)

func guardKey(ctx context.Context, client redis.UniversalClient, key string) error {
	_, err := guardedWrite.Run(ctx, client, key+"/guard", 1, []string{key}, 1)
	return err
}

func openMongoGuard(ctx context.Context, cfg Config) (subject, error) {
	return inMongo(ctx, cfg, func(ctx context.Context, guards *mongo.Collection) error {
		return mongolock.Guard(ctx, guards, measuredKey, 1)
	})
}

// openForUpdate locks the document that also is a guard.
func openForUpdate(ctx context.Context, cfg Config) (subject, error) {
	return inMongo(ctx, cfg, func(ctx context.Context, guards *mongo.Collection) error {
		var document struct{}
		return mongolock.ForUpdate(ctx, guards, measuredKey, &document)
	})
}

// inMongo measures the first statement of a transaction, together with its commit.
func inMongo(ctx context.Context, cfg Config, first func(context.Context, *mongo.Collection) error) (subject, error) {
	client, name, err := mongoClient(cfg, nil)
	if err != nil {
		return subject{}, err
	}
	closeClient := func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }
	guards := client.Database(name).Collection("lab_guards")
	if err := mongolock.MakeGuards(ctx, guards, measuredKey); err != nil {
		closeClient()
		return subject{}, err
	}
	session, err := client.StartSession()
	if err != nil {
		closeClient()
		return subject{}, err
	}
	return subject{once: func(ctx context.Context) error {
		_, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) { return nil, first(ctx, guards) })
		return err
	}, close: func() {
		session.EndSession(context.WithoutCancel(ctx))
		closeClient()
	}}, nil
}
