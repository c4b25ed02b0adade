package redislock

import (
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
)

// Options of a Store. The zero value is usable.
type Options struct {
	// Prefix begins every name in Redis; empty: "lock". Stores exclude each
	// other only if they have the same Prefix and HashTag.
	Prefix string
	// HashTag puts all keys of the Store into one slot of a Redis Cluster, and so
	// on one node. Several keys in one lease need it in a Cluster, and only there.
	// Empty: the keys are spread over the slots.
	HashTag string
}

// ErrHashTag reports a request for several keys in one lease on Redis Cluster, by a
// Store without Options.HashTag. A script runs on one node, and keys are certain to be
// on one node only if they share a hash tag.
var ErrHashTag = errors.New("redislock: on Redis Cluster several keys in one lease must share a hash tag: set Options.HashTag (the server calls it CROSSSLOT)")

// buckets is the number of fence counters for a prefix. Never change it: the names
// depend on it, so two versions of a program with different numbers would not
// exclude each other.
//
// One counter for all keys would put every lock of a Cluster into one slot. One
// counter for each key could never be deleted, and the counters would accumulate. 1024
// spread the keys over the nodes and cost at most a hundred kilobytes.
const buckets = 1024

// names returns the Redis names of keys: the locks, and for acquire.lua the locks
// followed by their fence counters (each once).
//
//	PREFIX{TAG}lock:KEY
//	PREFIX{TAG}fence
//
// Neither prefix nor tag has a brace, so the first pair of braces encloses TAG: names
// of different keys differ whatever bytes the keys hold, and Redis Cluster places
// them by TAG alone. The key comes last and unchanged: a Redis name may hold any bytes.
func (s *Store) names(keys []string) (locks, all []string) {
	locks = make([]string, len(keys), len(keys)+1)
	var counters []string
	for i, key := range keys {
		scope := s.scope(key)
		locks[i] = scope + "lock:" + key
		if counter := scope + "fence"; !slices.Contains(counters, counter) {
			counters = append(counters, counter)
		}
	}
	return locks, append(locks, counters...)
}

// scope returns the beginning of key's names: the prefix, and the tag that decides the slot.
func (s *Store) scope(key string) string {
	tag := s.tag
	if tag == "" {
		tag = strconv.Itoa(int(crc32.ChecksumIEEE([]byte(key)) % buckets))
	}
	return s.prefix + "{" + tag + "}"
}

// checkNaming refuses braces, which would let names of different keys collide.
func checkNaming(o Options) error {
	for option, value := range map[string]string{"Prefix": o.Prefix, "HashTag": o.HashTag} {
		if strings.ContainsAny(value, "{}") {
			return fmt.Errorf("redislock: Options.%s %q has a brace: braces mark the hash tag", option, value)
		}
	}
	return nil
}
