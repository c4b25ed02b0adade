package locking

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// KeyMax is the longest key, in bytes.
const KeyMax = 512

// CheckKeys returns ErrKey, and which key, unless there is at least one key and
// each is valid UTF-8 without NUL, 1 to KeyMax bytes long. The narrowest rule
// that all backends can keep, so that a key that is good here is good everywhere.
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

// SortedKeys checks keys and returns them as a set, for a Store to take them in
// that order and to put into the Lease: in byte order, the same for everyone, so
// that two who want the same keys cannot wait for each other; and each key once,
// because whoever derives keys from his data may well name one twice, and must
// not find himself busy. The result is a copy.
func SortedKeys(keys []string) ([]string, error) {
	if err := CheckKeys(keys); err != nil {
		return nil, err
	}
	sorted := slices.Clone(keys)
	slices.Sort(sorted)
	return slices.Compact(sorted), nil
}
