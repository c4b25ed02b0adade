// SPDX-License-Identifier: MIT

package stack

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"shop/locking/servertest/daemon"
)

// Redis as a master with two replicas (members 1 to 3), watched by three Sentinels (members 4 to
// 6). Sentinel takes a master for down after a second without an answer. Its address is that of the
// Sentinels, as go-redis parses it.
func sentinels() daemon.Kind {
	watch := daemon.Sentinel(sentinelLines)
	k := daemon.Redis(append(daemon.Durable, "--repl-diskless-sync-delay", "0")...)
	data := k.Argv
	k.Name, k.Members = "redis-sentinel", sentinelFirst+3
	k.Setup = func(ctx context.Context, i *daemon.Instance) error {
		if isSentinel(i) {
			return watch.Setup(ctx, i)
		}
		return nil
	}
	// Member 1 is started as the master, even if another one was promoted meanwhile: the Sentinels then make it a replica.
	k.Argv = func(i *daemon.Instance) []string {
		switch first := i.Cluster[0]; {
		case isSentinel(i):
			return watch.Argv(i)
		case i == first:
			return data(i)
		default:
			return append(data(i), "--replicaof", "127.0.0.1 "+strconv.Itoa(first.Ports[0]))
		}
	}
	k.Join = sentinelJoin
	k.URL = func(i *daemon.Instance) string {
		watch := i.Cluster[sentinelFirst:]
		return fmt.Sprintf("redis://%s/0?master_name=%s&addr=%s&addr=%s", watch[0].Addr(), SentinelMaster, watch[1].Addr(), watch[2].Addr())
	}
	return k
}

func sentinelLines(i *daemon.Instance) []string {
	lines := []string{
		"sentinel monitor " + SentinelMaster + " 127.0.0.1 " + strconv.Itoa(i.Cluster[0].Ports[0]) + " 2",
		"sentinel down-after-milliseconds " + SentinelMaster + " 1000",
		"sentinel failover-timeout " + SentinelMaster + " 5000",
	}
	for _, replica := range i.Cluster[1:sentinelFirst] { // otherwise found after ten seconds
		lines = append(lines, "sentinel known-replica "+SentinelMaster+" 127.0.0.1 "+strconv.Itoa(replica.Ports[0]))
	}
	return lines
}

// SentinelMaster is the name by which Sentinels know their master.
const SentinelMaster = "shop"

// sentinelFirst is the index of the first Sentinel.
const sentinelFirst = 3

func isSentinel(i *daemon.Instance) bool { return slices.Index(i.Cluster, i) >= sentinelFirst }

// sentinelJoin waits until each Sentinel knows both replicas, as synchronized, and the other Sentinels.
func sentinelJoin(ctx context.Context, first *daemon.Instance) error {
	for _, i := range first.Cluster[sentinelFirst:] {
		err := daemon.Until(ctx, func() error {
			reply, err := daemon.RedisAsk(ctx, i.Addr(), "SENTINEL REPLICAS "+SentinelMaster, "INFO sentinel")
			if err == nil && (strings.Count(reply, "\r\nmaster-link-status\r\n$2\r\nok\r\n") != 2 || !strings.Contains(reply, ",slaves=2,sentinels=3")) {
				err = fmt.Errorf("it replies %.300q", reply)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s does not know all members: %w", i.Name, err)
		}
	}
	return nil
}
