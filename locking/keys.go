package locking

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// KeyMax is the longest key, in bytes.
const KeyMax = 512

// CheckKeys returns an error that matches ErrKey and names the key, unless there is at
// least one key and each is valid. The rule is the strictest of all backends, so that a
// valid key is valid in every store.
func CheckKeys(keys []string) error {
	if len(keys) == 0 {
		return fmt.Errorf("%w: none was given", ErrKey)
	}
	for _, key := range keys {
		switch {
		case key == "":
			return fmt.Errorf("%w: empty", ErrKey)
		case len(key) > KeyMax:
			return fmt.Errorf("%w: %d bytes: %.32q…", ErrKey, len(key), key)
		case !utf8.ValidString(key), strings.ContainsRune(key, 0):
			return fmt.Errorf("%w: %q", ErrKey, key)
		}
	}
	return nil
}

// SortedKeys checks keys and returns a sorted copy without duplicates. A Store takes
// the keys in that order and puts them into the Lease. The order prevents two requests
// for the same keys from waiting for each other. Duplicates are removed, because a
// caller that names a key twice would find it held by its own lock.
func SortedKeys(keys []string) ([]string, error) {
	if err := CheckKeys(keys); err != nil {
		return nil, err
	}
	return slices.Compact(slices.Sorted(slices.Values(keys))), nil
}
