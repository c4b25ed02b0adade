// SPDX-License-Identifier: MIT

package locking_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"shop/locking"
)

func TestSortedKeys_IsASetInByteOrder(t *testing.T) {
	for _, c := range []struct{ keys, want []string }{
		{[]string{"a"}, []string{"a"}},
		{[]string{"b", "a"}, []string{"a", "b"}},
		{[]string{"a", "b", "a"}, []string{"a", "b"}},                // named twice, held once
		{[]string{"é", "z", "Z", "e"}, []string{"Z", "e", "z", "é"}}, // by bytes, not by a language
		{[]string{"a/10", "a/9", "a/1"}, []string{"a/1", "a/10", "a/9"}},
	} {
		before := slices.Clone(c.keys)
		got, err := locking.SortedKeys(c.keys)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, %v, want %q", c.keys, got, err, c.want)
		}
		got[0] = "changed"
		if !slices.Equal(c.keys, before) {
			t.Errorf("%q became %q: the caller's slice was changed", before, c.keys)
		}
	}
}

func TestSortedKeys_RefusesKeysThatSomeBackendCannotStore(t *testing.T) {
	long := strings.Repeat("x", locking.KeyMax)
	for name, c := range map[string]struct {
		keys []string
		ok   bool
	}{
		"one byte":              {[]string{"a"}, true},
		"512 bytes":             {[]string{long}, true},
		"512 bytes of runes":    {[]string{strings.Repeat("é", 256)}, true},
		"space, slash, newline": {[]string{" ", "/", "\n"}, true},
		"none":                  {nil, false},
		"empty":                 {[]string{""}, false},
		"513 bytes":             {[]string{long + "x"}, false},
		"257 runes, 514 bytes":  {[]string{strings.Repeat("é", 257)}, false},
		"NUL":                   {[]string{"a\x00"}, false},
		"not UTF-8":             {[]string{"a\xff"}, false},
		"half a rune":           {[]string{"日"[:2]}, false},
		"surrogate":             {[]string{"\xed\xa0\x80"}, false},
		"a bad one among good":  {[]string{"a", "b", ""}, false},
	} {
		got, err := locking.SortedKeys(c.keys)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, locking.ErrKey) {
			t.Errorf("%s: got %v, want valid: %t", name, err, c.ok)
		}
		if err != nil && got != nil {
			t.Errorf("%s: got %q along with the error", name, got)
		}
	}
}

func FuzzCheckKeys(f *testing.F) {
	f.Add("a", "b")
	f.Add("", "\x00")
	f.Add("\xff", strings.Repeat("é", 300))
	f.Fuzz(func(t *testing.T, a, b string) {
		good := true
		for _, key := range []string{a, b} {
			good = good && utf8.ValidString(key) && !strings.Contains(key, "\x00") && len(key) >= 1 && len(key) <= 512
		}
		err := locking.CheckKeys([]string{a, b})
		if (err == nil) != good {
			t.Errorf("%q, %q: got %v, want good: %t", a, b, err, good)
		}
		if err != nil && len(err.Error()) > 2200 {
			t.Errorf("the error is %d bytes long", len(err.Error()))
		}
	})
}
