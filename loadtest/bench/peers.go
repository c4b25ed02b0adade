package bench

import (
	"slices"
	"strings"
)

// The cases of the comparison with other libraries.
const (
	FreeKey = "free" // one goroutine takes and releases free keys; the ratio is that of times
	OneKey  = "key"  // all want one key; the ratio is that of hand-offs a second
)

// ofItsKind are the peers that promise what a lock of this repository does, as far as any does: a lease is
// compared with leases, and a session with sessions. The Store of redislock has none: it is for keys that are free most of
// the time, and its package has Waiter and the fair lock for keys for which many wait.
var ofItsKind = map[string][]string{
	"redislock Waiter":   redisPeers,
	"redislock fair":     redisPeers,
	"etcdlock":           {"etcd concurrency"},
	"pglock sessions":    {"pg_advisory_lock"},
	"pglock table":       {"lock table, polled"},
	"mysqllock sessions": {"GET_LOCK", "go-mysql-lock"},
	"mysqllock table":    {"MySQL table, polled"},
	"mongolock":          {"document, polled"},
	"zklock":             {"go-zookeeper Lock"},
}

var redisPeers = []string{"bsm/redislock", "redsync", "rueidislock"}

// JudgePeer compares a row with the targets of a comparison with another library. A lock is as good as the best
// peer if it meets the targets against each.
func (r *Row) JudgePeer() {
	r.Targets = []Target{}
	peer := slices.Contains(ofItsKind[r.Strategy], r.Baseline)
	switch {
	case r.Case == FreeKey && r.Baseline == "raw SET NX PX":
		r.Targets = append(r.Targets, r.target("ratio", atMost, 1.15))
	case r.Case == FreeKey && peer && (r.Strategy == "etcdlock" || strings.HasPrefix(r.Strategy, "pglock")):
		r.Targets = append(r.Targets, r.target("low", atMost, 1)) // not slower, as far as the interval can tell
	case r.Case == OneKey && peer:
		r.Targets = append(r.Targets, r.target("ratio", atLeast, 1), r.target("min/max", atLeast, 0.5))
	}
}
