// SPDX-License-Identifier: MIT

package locktest

import (
	"errors"
	"strings"

	"shop/locking"
)

// odd returns keys of which some encoding, collation, path or shell makes two equal.
func odd() []string {
	long := strings.Repeat("x", 511)
	return []string{
		"a", "A", "a ", " a", "a  ", "a\t", "a\n", "a\r\n", "a\x01", "a\u200b", "aa",
		"é", "e\u0301", "E\u0301", "ß", "ss", "ſ", "s", "K", "k", "\u212a", "ı", "i", "İ", "日本", "🔒", "🔓",
		"/", "//", "/a", "a/", "a//", "a/b", "a//b", "a/./b", "a/../b", "..", ".", `a\b`,
		"{", "}", "{}", "{a}", "{a}a", "a{a}", "{{a}}", "}a{", "{a}b", "{b}a",
		"a%2fb", "a%2Fb", "a%b", "a+b", "a b", "a_b", "a-b", "a:b", "a::b", "a.b", "a,b", "a;b",
		"*", "?", "[a]", "$a", "'a'", `"a"`, "`a`", "--", "null", "NULL", "nil", "0", "00", "-0", "1e3", "1000", "0x0",
		"lock", "lock:", "lock:a", "fence", "fence:a", "_", "=", "#", "a#", "~",
		long + "x", long + "y", "y" + long, long, long[:256], long[:255], long[:64], long[:63],
	}
}

// keysOdd checks that all odd keys can be held at once, and that another store finds each
// of them busy.
func keysOdd(s *suite) {
	a, b := s.open(s.ttl(5*deadline)), s.open(s.long())
	held := map[string]locking.Lease{}
	for _, k := range odd() {
		if other, twice := held[k]; twice {
			s.Fatalf("locktest: key %q is listed twice: %+v", k, other)
		}
		held[k] = s.try(a, k)
	}
	for k := range held {
		s.busy(b, k)
	}
	for _, k := range odd() {
		s.release(a, held[k])
		s.release(b, s.try(b, k))
	}
}

// keysInvalid checks that an invalid key is ErrKey, not ErrBusy, and that a key which is named twice is one key.
func keysInvalid(s *suite) {
	store := s.open(s.long())
	for what, k := range map[string]string{
		"empty": "", "513 bytes": strings.Repeat("x", 513), "with NUL": "a\x00b", "not UTF-8": "a\xff", "half a rune": "日"[:2],
	} {
		if lease, err := store.TryAcquire(s.within(deadline), k); !errors.Is(err, locking.ErrKey) {
			s.Errorf("a key that is %s: got %+v and %v, want ErrKey", what, lease, err)
		}
	}
	if lease, err := store.TryAcquire(s.within(deadline)); !errors.Is(err, locking.ErrKey) {
		s.Errorf("no key at all: got %+v and %v, want ErrKey", lease, err)
	}
	if lease, err := store.TryAcquire(s.within(deadline), "good", ""); !errors.Is(err, locking.ErrKey) {
		s.Errorf("a good key and an empty one: got %+v and %v, want ErrKey", lease, err)
	}
	s.release(store, s.try(store, "good"))
	lease, err := acquire(s.within(deadline), store, "good", "good")
	if err != nil || len(lease.Keys) != 1 {
		s.Fatalf("a key that is named twice: got %+v and %v, want a lease of one key", lease, err)
	}
	s.release(store, lease)
}
