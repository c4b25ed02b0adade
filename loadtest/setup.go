// SPDX-License-Identifier: MIT

package loadtest

import (
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/loadtest/fault"
	"shop/loadtest/fault/mongofault"
	"shop/loadtest/fault/nemesis"
	"shop/loadtest/fault/pgfault"
)

// Setup is what a fault needs of the servers and the replicas, and how it is injected. What the fault does is in package fault.
type Setup struct {
	Redis, Postgres, Etcd, Mongo string // the kind of a private server, which it may hurt; "": the shared one

	Proxied     bool          // each replica reaches the database of its flow through a proxy
	Links       bool          // each replica reaches its stores through links that can be cut
	Guard       int           // the pause that widens the race at after-guard, in units; 0: 1
	Begin       int           // … of a transfer at after-begin; 0: 1
	TTL         time.Duration // of the locks; 0: Proof.LockTTL
	Async       bool          // COMMITs do not wait for the disk
	Lifetime    time.Duration // for how long MongoDB keeps the transaction of a silent client; 0: Proof.LockTTL
	StopInBatch bool          // each replica has a failpoint at another of Flow.Batch, and can be paused there
	Args        []string      // more arguments of each replica

	Inject func(Servers, *Trial) (fault.Fault, error) // nil: nothing is injected
}

// The kinds of private servers that are more than one server.
const (
	RedisSentinel = "redis-sentinel"   // a master, two replicas and three Sentinels
	PostgresPair  = "postgres-standby" // a primary with a standby
	EtcdThree     = "etcd3"
	MongoThree    = "mongo3"
)

// Private returns the kinds of private servers.
func (s Setup) Private() (kinds []string) {
	for _, kind := range []string{s.Redis, s.Postgres, s.Etcd, s.Mongo} {
		if kind != "" {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Servers are the servers of a proof, and what else a fault acts on beside the replicas.
type Servers interface {
	Redis(Scenario) (*redis.Client, error)
	Etcd(Scenario) (*clientv3.Client, error)
	Members(kind string) ([]fault.Member, error) // of the private servers of a kind
	PostgresProxies() []*pgfault.Proxy           // one for each replica, if Setup.Proxied
	MongoProxies() []*mongofault.Proxy
	Links() []*nemesis.Link // of all replicas, if Setup.Links
	Nemesis(*Trial) (fault.Fault, error)
	Folder() string // for files of the report
}
