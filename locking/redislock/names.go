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
	// HashTag puts all keys of the Store into one slot of a Redis Cluster, and
	// so on one node. Needed there, and only there, for several keys in one
	// lease. Empty: the keys are spread.
	HashTag string
}

// ErrHashTag tells that several keys were asked for in one lease on Redis
// Cluster, by a Store without Options.HashTag. A script runs on one node, and
// keys live on one node for certain only if they have one hash tag.
var ErrHashTag = errors.New("redislock: on Redis Cluster several keys in one lease must share a hash tag: set Options.HashTag (the server calls it CROSSSLOT)")

// buckets is how many fence counters there are for a prefix. It is part of the
// names, so that two versions of a program with different numbers would not
// exclude each other: never change it.
//
// One counter for all keys would put every lock of a Cluster into one slot; one
// counter for each key would never be deleted and pile up. 1024 spread the keys
// over the nodes and cost at most a hundred kilobytes.
const buckets = 1024

// names gives the Redis names of keys: the locks, then their fence counters
// (each once), as acquire.lua takes them.
//
//	PREFIX{TAG}lock:KEY
//	PREFIX{TAG}fence
//
// Neither prefix nor tag has a brace, so the first pair of braces is ours:
// names of different keys differ whatever bytes the keys hold, and Redis
// Cluster places them by TAG alone. The key comes last and is left as it is:
// Redis names are any bytes.
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

// scope is the part of a name that decides its slot: prefix and tag.
func (s *Store) scope(key string) string {
	tag := s.tag
	if tag == "" {
		tag = strconv.Itoa(int(crc32.ChecksumIEEE([]byte(key)) % buckets))
	}
	return s.prefix + "{" + tag + "}"
}

// checkNaming refuses what would let two names run into each other.
func checkNaming(o Options) error {
	for option, value := range map[string]string{"Prefix": o.Prefix, "HashTag": o.HashTag} {
		if strings.ContainsAny(value, "{}") {
			return fmt.Errorf("redislock: Options.%s %q has a brace: braces mark the hash tag", option, value)
		}
	}
	return nil
}
