package etcdlock

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

// KeysMax is how many keys a lease may have. etcd takes 128 operations in a
// transaction unless it is told otherwise, and to wait takes two for each key.
const KeysMax = opsMax / 2

// opsMax is etcd's --max-txn-ops.
const opsMax = 128

// ErrTooManyKeys tells that a lease of more than KeysMax keys was asked for.
var ErrTooManyKeys = fmt.Errorf("etcdlock: more than %d keys in one lease", KeysMax)

// queue is the part that all waiters for a key have in common:
//
//	PREFIX/LENGTH:KEY/
//
// The length comes first, so that no queue's name begins another's, whatever
// bytes a key holds: "a" is 1:a/ and "a/b" is 3:a/b/.
func (s *Store) queue(key string) string {
	return s.prefix + "/" + strconv.Itoa(len(key)) + ":" + key + "/"
}

// gate is the name of a session's gate. No length begins with a letter.
func (s *Store) gate(id clientv3.LeaseID) string {
	return fmt.Sprintf("%s/session:%x", s.prefix, int64(id))
}

// checkPrefix fills in the prefix, and refuses a colon: the first one in a name
// has to be ours.
func checkPrefix(prefix string) (string, error) {
	if strings.ContainsAny(prefix, ":\x00") {
		return "", fmt.Errorf("etcdlock: prefix %q has a colon, or NUL: a colon marks the length of a key", prefix)
	}
	return cmp.Or(prefix, "lock"), nil
}

// checkKeys puts keys in order, and refuses what etcd would refuse.
func checkKeys(keys []string) ([]string, error) {
	sorted, err := locking.SortedKeys(keys)
	if err == nil && len(sorted) > KeysMax {
		err = fmt.Errorf("%w: %d", ErrTooManyKeys, len(sorted))
	}
	return sorted, err
}
