// SPDX-License-Identifier: MIT

package mysqllock

import (
	"crypto/rand"
	"database/sql"
	"strings"
	"testing"
	"time"

	"shop/locking/locktest"
)

// alike are pairs of keys that a server may take for one, or refuse: by case, by a space at the end, by
// accents, by characters outside of utf8mb3, or by what is beyond the longest name.
var alike = [][2]string{
	{"order/a", "order/A"},
	{"order/a", "order/a "},
	{"order/é", "order/e"},
	{"order/é", "order/É"},
	{"order/🔒", "order/🔓"},
	{strings.Repeat("x", 64) + "1", strings.Repeat("x", 64) + "2"},
	{strings.Repeat("x", 192) + "1", strings.Repeat("x", 192) + "2"},
}

// getLock calls GET_LOCK without waiting. NULL is false.
func getLock(t *testing.T, db *sql.DB, name string) (free bool, err error) {
	t.Helper()
	var answer sql.NullBool
	err = db.QueryRowContext(t.Context(), `SELECT GET_LOCK(?, 0)`, name).Scan(&answer)
	return answer.Bool, err
}

// GET_LOCK of two plausible keys is one lock, or an error: of MySQL by case, for example, of MariaDB by
// length alone. Ours are two locks.
func TestName_KeepsKeysApartThatTheServerConfuses(t *testing.T) {
	t.Parallel()
	_, a := newSessions(t, 1)
	_, b := newSessions(t, 1)
	store, _ := newSessions(t, 8)
	space, confused := rand.Text(), 0
	for _, keys := range alike {
		_, _ = getLock(t, a, space+keys[0])
		if free, err := getLock(t, b, space+keys[1]); err != nil || !free {
			t.Logf("GET_LOCK: after %.30q, %.30q is granted: %t, %v", keys[0], keys[1], free, err)
			confused++
		}
		for _, session := range []*sql.DB{a, b} {
			number(t, session, `SELECT RELEASE_ALL_LOCKS()`)
		}
		first, second := locktest.Taken(t, store, keys[0]), locktest.Taken(t, store, keys[1])
		must(t, store.Release(t.Context(), first))
		must(t, store.Release(t.Context(), second))
	}
	if confused == 0 {
		t.Error("GET_LOCK confuses none of these keys: the test shows nothing")
	}
}

// A name that is too long is an error, at a length that depends on the server.
func TestName_IsNeverTooLong(t *testing.T) {
	t.Parallel()
	_, db := newSessions(t, 1)
	limit := 64
	if mariaDB(t, db) {
		limit = 192
	}
	if free, err := getLock(t, db, strings.Repeat("x", limit)); err != nil || !free {
		t.Errorf("%d characters: granted %t, %v", limit, free, err)
	}
	if _, err := getLock(t, db, strings.Repeat("x", limit+1)); code(err) == 0 {
		t.Errorf("%d characters: %v, want an error of the server", limit+1, err)
	}
	for _, key := range []string{"", "a", strings.Repeat("🔒", 200)} {
		if n := len(Name(key)); n != 64 {
			t.Errorf("the name of %.8q has %d characters, want 64", key, n)
		}
	}
}

// The names are those of every process that ever locks: a change would let two in.
func TestName_NeverChanges(t *testing.T) {
	if got := Name("abc"); got != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Errorf("Name(abc) is %s", got)
	}
}

// The same in a table: a key is one row with another one's, unless the column is of bytes.
func TestLocks_KeepKeysApartThatACollationConfuses(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	exec(t, db, `CREATE TABLE text (name VARCHAR(512) CHARACTER SET utf8mb4 PRIMARY KEY)`)
	confused := 0
	for i, keys := range alike {
		for n, key := range keys {
			_, err := db.ExecContext(t.Context(), `INSERT INTO text (name) VALUES (?)`, strings.Repeat("_", i)+key)
			if err != nil && (code(err) != 1062 || n == 0) {
				t.Error(err)
			} else if err != nil {
				t.Logf("%.20q and %.20q are one row", keys[0], keys[1])
				confused++
			}
		}
	}
	if confused == 0 {
		t.Error("the collation confuses none of these keys: the test shows nothing")
	}
	store, _ := newStore(t, time.Minute)
	for _, keys := range alike {
		lease := locktest.Taken(t, store, keys[0], keys[1])
		if len(lease.Keys) != 2 {
			t.Errorf("%q is one key", keys)
		}
		must(t, store.Release(t.Context(), lease))
	}
}
