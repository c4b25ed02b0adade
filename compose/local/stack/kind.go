// SPDX-License-Identifier: MIT

package stack

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"shop/locking/servertest/daemon"
	"shop/locking/servertest/daemon/mongod"
)

// kind is a kind of server of the stack.
type kind struct {
	daemon.Kind
	variable string // the setting that holds its address; if set already, no server is started
	byName   bool   // started only when requested by name
	program  program
	files    uint64 // open files that it needs; 0: any limit suffices
}

// kinds are those of the stack by name. To add one, add it here.
var kinds = kindsByName(
	kind{Kind: daemon.Postgres(), variable: "SHOP_POSTGRES_URL", program: postgres},
	kind{Kind: daemon.PostgresStandby(), variable: "SHOP_POSTGRES_URL", program: postgres, byName: true},
	kind{Kind: daemon.Redis(daemon.Durable...), variable: "SHOP_REDIS_URL", program: redis},
	kind{Kind: named("redis-memory", daemon.Redis()), variable: "SHOP_REDIS_URL", program: redis, byName: true},
	kind{Kind: sentinels(), variable: "SHOP_REDIS_URL", program: redis, byName: true},
	kind{Kind: daemon.Etcd(1), variable: "SHOP_ETCD_ENDPOINTS", program: etcd},
	kind{Kind: named("etcd3", daemon.Etcd(3)), variable: "SHOP_ETCD_ENDPOINTS", program: etcd, byName: true},
	kind{Kind: mongod.Kind(1), variable: "SHOP_MONGO_URL", program: mongo, files: mongoFiles},
	kind{Kind: named("mongo3", mongod.Kind(3)), variable: "SHOP_MONGO_URL", program: mongo, files: mongoFiles, byName: true},
	kind{Kind: daemon.ZooKeeper(1), variable: "SHOP_ZOOKEEPER_SERVERS", program: java, byName: true}, // for loadtest/bench
)

// mongoFiles has one for each collection and index, which stay open for a while after a drop.
const mongoFiles = 4096

var (
	postgres = program{
		file:   "postgres",
		beside: []string{"initdb", "psql", "pg_basebackup"},
		dirs:   []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin"},
		apt:    "postgresql",
		brew:   "postgresql@18",
	}
	redis = program{file: "redis-server", apt: "redis-server", brew: "redis"}
	// etcd is built at the version in compose/local/etcd/go.mod: distributions package versions with lease bugs.
	etcd  = program{file: "etcd", module: "compose/local/etcd"}
	mongo = program{file: "mongod", apt: "mongodb-org", brew: "mongodb/brew/mongodb-community", pypi: mongodPackage}
	java  = program{
		file: "java", apt: "default-jre-headless libzookeeper-java", brew: "openjdk zookeeper",
		dirs: []string{"/opt/homebrew/opt/openjdk/bin", "/usr/local/opt/openjdk/bin"},
		with: func() bool { return daemon.ZooKeeperJars() != "" },
	}
)

func kindsByName(all ...kind) map[string]*kind {
	byName := map[string]*kind{}
	for _, k := range all {
		byName[k.Name] = &k
	}
	return byName
}

func named(name string, k daemon.Kind) daemon.Kind {
	k.Name = name
	return k
}

// Kinds lists the servers that a stack starts by default.
func Kinds() []string {
	var names []string
	for name, k := range kinds {
		if !k.byName {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Variable returns the setting that holds the address of a kind of server.
func Variable(name string) (string, error) {
	k, err := kindOf(name)
	if err != nil {
		return "", err
	}
	return k.variable, nil
}

func kindOf(name string) (*kind, error) {
	k, ok := kinds[name]
	if !ok {
		var known []string
		for name := range kinds {
			known = append(known, name)
		}
		slices.Sort(known)
		return nil, fmt.Errorf("stack: no server is called %q (known: %s)", name, strings.Join(known, ", "))
	}
	return k, nil
}

// manyFiles is a limit above the open files of any of these servers.
const manyFiles = 64_000

// allowFiles raises the soft limit of open files, which servers inherit, to the hard
// limit. The soft limit is 1,024 on most systems. The Go runtime raises its own soft
// limit, but starts children with the original one unless Setrlimit was called.
func allowFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = min(limit.Max, manyFiles)
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// checkFiles checks that a server of this kind can open as many files as it needs.
func (k *kind) checkFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if limit.Max >= k.files {
		return nil
	}
	return fmt.Errorf("%s needs %d open files, and the hard limit is %d (ulimit -Hn)\n"+
		"  what to do: raise it to %[2]d or more: `* hard nofile %[4]d` in /etc/security/limits.conf and a new login, LimitNOFILE=%[4]d in a systemd unit, --ulimit nofile=%[4]d for docker run\n"+
		"  or set %[5]s to a running server", k.Name, k.files, limit.Max, manyFiles, k.variable)
}
