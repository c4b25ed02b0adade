package etcdlock

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"shop/locking"
)

// KeysMax is how many keys a lease may have. etcd accepts 128 operations in a
// transaction unless --max-txn-ops sets another limit, and Acquire needs two for each
// key.
const KeysMax = 128 / 2

// ErrTooManyKeys reports a request for more than KeysMax keys in one lease.
var ErrTooManyKeys = fmt.Errorf("etcdlock: more than %d keys in one lease", KeysMax)

// queueOf returns the prefix that the names of all waiters for a key share:
//
//	PREFIX/LENGTH:KEY/
//
// The length comes first, so that no queue's name is a prefix of another's, whatever
// bytes a key holds: "a" is 1:a/ and "a/b" is 3:a/b/. Names of other kinds have no
// digit in that position.
func (s *Store) queueOf(key string) string {
	return s.prefix + "/" + strconv.Itoa(len(key)) + ":" + key + "/"
}

// fencingKey is the name of the key that fences the attempt with this nonce: see
// attempt.remove.
func (s *Store) fencingKey(nonce string) string { return s.prefix + "/fenced:" + nonce }

// epochKey is the name of the epoch's value.
func epochKey(prefix string) string { return prefix + "/epoch" }

// checkKeys returns keys in order, or an error if etcd would refuse them.
func checkKeys(keys []string) ([]string, error) {
	sorted, err := locking.SortedKeys(keys)
	if err == nil && len(sorted) > KeysMax {
		err = fmt.Errorf("%w: %d", ErrTooManyKeys, len(sorted))
	}
	return sorted, err
}

// checkPrefix returns the prefix or its default. It refuses a colon: the first colon in
// a name has to be the one after the length.
func checkPrefix(prefix string) (string, error) {
	if strings.ContainsAny(prefix, ":\x00") {
		return "", fmt.Errorf("etcdlock: prefix %q has a colon, or NUL: a colon marks the length of a key", prefix)
	}
	return cmp.Or(prefix, "lock"), nil
}
