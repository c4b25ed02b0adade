// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/redisfault"
)

// redisURL returns the URL of the shared server, or of a private one for a scenario that kills it.
func (e *environment) redisURL(s loadtest.Scenario) (string, error) {
	if kind := s.Setup().Redis; kind != "" {
		return e.privateURL(kind)
	}
	return e.settings.RedisURL, nil
}

// Redis returns a client for the faults and the evidence of a scenario.
func (e *environment) Redis(s loadtest.Scenario) (*redis.Client, error) {
	url, err := e.redisURL(s)
	if err != nil {
		return nil, err
	}
	return e.redisAt(url)
}

func (e *environment) redisAt(url string) (*redis.Client, error) {
	if client := e.redises[url]; client != nil {
		return client, nil
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(options)
	if e.redises == nil {
		e.redises = map[string]*redis.Client{}
	}
	e.redises[url] = client
	e.closing = append(e.closing, func() { _ = client.Close() })
	return client, nil
}

// redisMonitor counts the requests to Redis for locks.
func (e *environment) redisMonitor(ctx context.Context, t *loadtest.Trial) (loadtest.Monitor, error) {
	calls, err := e.countCalls(ctx, t)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, _ []fault.Event) (map[string]int64, error) {
		all, after, err := calls.Stop(ctx)
		return map[string]int64{"lock_calls": all, "lock_calls_after": after}, err
	}, nil
}

// redisFigures counts the connections of others to Redis, and the locks.
func (e *environment) redisFigures(ctx context.Context, t *loadtest.Trial, idle map[string]int64) ([]loadtest.Figure, error) {
	client, err := e.Redis(t.Scenario)
	if err != nil {
		return nil, err
	}
	locks, err := redisfault.Leftovers(ctx, client, t.Prefix)
	if err != nil {
		return nil, err
	}
	info, err := client.InfoMap(ctx, "clients").Result()
	if err != nil {
		return nil, err
	}
	connections, err := strconv.ParseInt(info["Clients"]["connected_clients"], 10, 64)
	return []loadtest.Figure{
		{Name: "Redis: connections", After: connections - int64(client.PoolStats().TotalConns) - idle["redis"], Slack: 6},
		{Name: "Redis: locks", After: int64(len(locks))},
	}, err
}

// countCalls counts the calls to the server of a scenario, or to each of its servers.
func (e *environment) countCalls(ctx context.Context, t *loadtest.Trial) (redisCalls, error) {
	if t.Scenario.Setup().Redis != loadtest.RedisSentinel {
		client, err := e.Redis(t.Scenario)
		if err != nil {
			return nil, err
		}
		return redisfault.CountCalls(ctx, client)
	}
	all, err := e.Members(loadtest.RedisSentinel)
	if err != nil {
		return nil, err
	}
	var members []*redis.Client
	for _, m := range all[:3] { // the others are Sentinels
		client, err := e.redisAt("redis://" + m.Addr)
		if err != nil {
			return nil, err
		}
		members = append(members, client)
	}
	return redisfault.CountSetCalls(ctx, members)
}

type redisCalls interface {
	Stop(context.Context) (all, after int64, err error)
}
