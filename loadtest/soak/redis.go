// SPDX-License-Identifier: MIT

package soak

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// fenceCounters is the largest number of fence counters that redislock keeps; they never expire.
const fenceCounters = 1024

// Redis reads a server, and the locks whose keys begin with a prefix.
func Redis(client redis.UniversalClient, prefix string) Source {
	return Source{
		Gauges: []Gauge{
			{Name: "Redis: connections", From: "INFO clients", Share: 0.1, Slack: 6, Steps: true},
			{Name: "Redis: memory", Unit: "MiB", From: "INFO memory", Share: 0.2, Slack: 4},
			{Name: "Redis: locks", From: "SCAN", Slack: 20, Empty: true},
			{Name: "Redis: counters of fences", From: "SCAN", Most: fenceCounters},
		},
		Read: func(ctx context.Context) ([]float64, error) {
			info, err := client.Info(ctx, "clients", "memory").Result()
			if err != nil {
				return nil, err
			}
			clients, missing := infoField(info, "connected_clients")
			memory, also := infoField(info, "used_memory")
			for _, err := range []error{missing, also} {
				if err != nil {
					return nil, err
				}
			}
			locks, fences, err := countKeys(ctx, client, prefix)
			return []float64{clients, memory / mebibyte, locks, fences}, err
		},
	}
}

func infoField(info, name string) (float64, error) {
	for line := range strings.Lines(info) {
		if key, number, _ := strings.Cut(strings.TrimSpace(line), ":"); key == name {
			return strconv.ParseFloat(number, 64)
		}
	}
	return 0, fmt.Errorf("no %s in INFO", name)
}

// countKeys counts locks (PREFIX{TAG}lock:KEY) and fence counters, which are kept (PREFIX{TAG}fence).
func countKeys(ctx context.Context, client redis.UniversalClient, prefix string) (locks, fences float64, err error) {
	keys := client.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if strings.HasSuffix(keys.Val(), "}fence") {
			fences++
		} else {
			locks++
		}
	}
	return locks, fences, keys.Err()
}
