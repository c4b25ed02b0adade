// SPDX-License-Identifier: MIT

package etcdlock

import (
	"strings"
	"testing"
)

// No queue's name is a prefix of another name, whatever keys and prefixes hold.
func TestNames_NoQueueIsAPrefixOfAnother(t *testing.T) {
	keys := []string{"a", "b", "aa", "a/", "a/b", "a/2:b/", "/", "//", "1:a/", "1:a", "session:1", "日本", strings.Repeat("x", 512), strings.Repeat("x", 511)}
	var names []string
	for _, prefix := range []string{"lock", "lock/1", "lock/", "lock/session", ""} {
		s := &locks{prefix: prefix}
		names = append(names, epochKey(prefix)+"/")
		for _, k := range keys {
			names = append(names, s.queueOf(k))
		}
	}
	for i, a := range names {
		for j, b := range names {
			if i != j && strings.HasPrefix(a, b) {
				t.Errorf("%q begins with %q", a, b)
			}
		}
	}
}

func TestNew_RefusesAPrefixThatCouldCollideWithAKey(t *testing.T) {
	t.Parallel()
	client := shared(t).client(t)
	for _, prefix := range []string{"lock/1:a", ":", "a\x00"} {
		if s, err := New(t.Context(), client, minTTL, Options{Prefix: prefix}); err == nil {
			s.Close()
			t.Errorf("prefix %q was accepted", prefix)
		}
		if _, _, err := NewEpoch(t.Context(), client, prefix); err == nil {
			t.Errorf("prefix %q was accepted for an epoch", prefix)
		}
	}
}
