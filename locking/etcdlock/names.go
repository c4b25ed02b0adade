package etcdlock

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"shop/locking"
)

// KeysMax is how many keys a lease may have. etcd takes 128 operations in a
// transaction unless --max-txn-ops sets another limit, and to wait takes two for each
// key.
const KeysMax = 128 / 2

// ErrTooManyKeys tells that a lease of more than KeysMax keys was asked for.
var ErrTooManyKeys = fmt.Errorf("etcdlock: more than %d keys in one lease", KeysMax)

// queueOf is the part that the names of all waiters for a key have in common:
//
//	PREFIX/LENGTH:KEY/
//
// The length comes first, so that no queue's name begins another's, whatever
// bytes a key holds: "a" is 1:a/ and "a/b" is 3:a/b/. No other name goes on with a digit.
func (s *Store) queueOf(key string) string {
	return s.prefix + "/" + strconv.Itoa(len(key)) + ":" + key + "/"
}

// fencingKey is the name of what stops the attempt of a nonce: see attempt.remove.
func (s *Store) fencingKey(nonce string) string { return s.prefix + "/fenced:" + nonce }

// epochKey is the name of the epoch's value.
func epochKey(prefix string) string { return prefix + "/epoch" }

// checkKeys puts keys in order, and refuses what etcd would refuse.
func checkKeys(keys []string) ([]string, error) {
	sorted, err := locking.SortedKeys(keys)
	if err == nil && len(sorted) > KeysMax {
		err = fmt.Errorf("%w: %d", ErrTooManyKeys, len(sorted))
	}
	return sorted, err
}

// checkPrefix fills in the prefix, and refuses a colon: the first one in a name
// has to be ours.
func checkPrefix(prefix string) (string, error) {
	if strings.ContainsAny(prefix, ":\x00") {
		return "", fmt.Errorf("etcdlock: prefix %q has a colon, or NUL: a colon marks the length of a key", prefix)
	}
	return cmp.Or(prefix, "lock"), nil
}
