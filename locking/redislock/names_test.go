// SPDX-License-Identifier: MIT

package redislock

import (
	"os"
	"slices"
	"strings"
	"testing"

	"shop/locking/redislock/redistest"
)

// hashTag returns the part of a name from which Redis Cluster computes the slot: the
// text between the first '{' and the next '}', unless it is empty.
func hashTag(name string) string {
	_, after, _ := strings.Cut(name, "{")
	tag, _, found := strings.Cut(after, "}")
	if !found || tag == "" {
		return name
	}
	return tag
}

var oddKeys = []string{"a", "{a}", "}{", "{", "}", "{}", "{}{a}", "a}b{c}", "fence", "lock:a", "{1}lock:a", strings.Repeat("{", 512)}

func TestNames_BracesInAKeyDoNotChangeItsSlot(t *testing.T) {
	for _, s := range []Options{{Prefix: "p"}, {Prefix: "p", HashTag: "t"}, {HashTag: "t"}, {}} {
		for _, k := range oddKeys {
			locks, all := s.names([]string{k})
			if len(locks) != 1 || len(all) != 2 || all[0] != locks[0] {
				t.Fatalf("names of %q: %q, %q", k, locks, all)
			}
			lock, counter := hashTag(locks[0]), hashTag(all[1])
			if lock != counter || s.HashTag != "" && lock != s.HashTag {
				t.Errorf("key %q: the lock has the tag %q, its counter %q, the store %q", k, lock, counter, s.HashTag)
			}
		}
	}
}

func TestNames_AreDifferentForDifferentKeysAndStores(t *testing.T) {
	seen := map[string]string{}
	for _, s := range []Options{{Prefix: "p"}, {Prefix: "p", HashTag: "t"}, {Prefix: "p", HashTag: "u"}, {Prefix: "q", HashTag: "t"}, {Prefix: "plock:", HashTag: "t"}} {
		for _, k := range oddKeys {
			_, all := s.names([]string{k})
			owner := s.Prefix + "|" + s.HashTag + "|" + k
			for _, name := range all[:1] {
				if other, twice := seen[name]; twice {
					t.Errorf("%q and %q share %q", other, owner, name)
				}
				seen[name] = owner
			}
			if other, clash := seen[all[1]]; clash {
				t.Errorf("the counter of %q is the lock of %q", owner, other)
			}
		}
	}
}

// The package documentation shows the names. Versions of a program, and operators with
// redis-cli, rely on them.
func TestNames_AreAsDocumented(t *testing.T) {
	_, all := (Options{Prefix: "lock"}).names([]string{"sku-1"})
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"lock{366}lock:sku-1", "lock{366}fence"}; !slices.Equal(all, want) {
		t.Errorf("names %q, want %q", all, want)
	}
	for _, name := range append(all, Options{Prefix: "lock"}.marks([]string{"sku-1"})...) {
		if !strings.Contains(string(text), "//\t"+name+" ") {
			t.Errorf("doc.go does not show %s", name)
		}
	}
}

// A counter that several keys share is named once: acquire.lua writes every name it gets.
func TestNames_CountersAreNamedOnce(t *testing.T) {
	s := Options{Prefix: "p", HashTag: "t"}
	locks, all := s.names([]string{"a", "b", "c"})
	if len(locks) != 3 || len(all) != 4 {
		t.Errorf("locks %q, all %q", locks, all)
	}
}

func TestNew_RefusesBracesInOptions(t *testing.T) {
	client := connect(t, redistest.URL(t), TTLMin)
	for _, o := range []Options{{Prefix: "a{b}"}, {Prefix: "}"}, {HashTag: "{t}"}, {HashTag: "t}"}} {
		if s, err := New(client, TTLMin, o); err == nil {
			t.Errorf("%+v was accepted: %+v", o, s)
		}
	}
}
