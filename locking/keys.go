package locking

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// KeyMax is the longest key, in bytes.
const KeyMax = 512

// CheckKeys returns ErrKey, and which key, unless there is at least one key and each
// keeps the narrowest rule of all backends: a key that is good here is good everywhere.
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

// SortedKeys checks keys, and returns a copy for a Store to take in that order and to
// put into the Lease: in byte order, so that two requests for the same keys cannot
// wait for each other, and each key once, so that a caller that names one twice is
// not busy by its own lock.
func SortedKeys(keys []string) ([]string, error) {
	if err := CheckKeys(keys); err != nil {
		return nil, err
	}
	return slices.Compact(slices.Sorted(slices.Values(keys))), nil
}
