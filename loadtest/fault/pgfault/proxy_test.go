// SPDX-License-Identifier: MIT

package pgfault

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

// soon receives from c, and fails the test if c stays silent.
func soon[T any](t testing.TB, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: not within 20 s", what)
	}
	return v
}

// concurrently runs f, and sends its error.
func concurrently(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

func all(*segment) bool { return true }

func touches(p *segment) bool { return p.touches }

func TestProxy_StatementsPipelinesAndErrorsPass(t *testing.T) {
	b := newBank(t)
	conn := b.connect(b.proxy().URL())
	for i := range 3 { // prepared at first, then only bound
		if passed, err := b.fenced(t.Context(), conn, 7, int64(50+i)); err != nil || !passed {
			t.Fatalf("passed %v, %v", passed, err)
		}
	}
	if passed, err := b.fenced(t.Context(), conn, 6, 0); err != nil || passed {
		t.Errorf("an old fence passed: %v, %v", passed, err)
	}
	if _, err := conn.Exec(t.Context(), "SELECT 1/0"); err == nil {
		t.Error("no error came through")
	}
	large := make([]byte, 3<<20)
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT length($1::bytea)", large).Scan(&n); err != nil || n != len(large) {
		t.Errorf("%d bytes arrived, %v", n, err)
	}
	copied, err := conn.CopyFrom(t.Context(), pgx.Identifier{"accounts"}, []string{"id", "balance"},
		pgx.CopyFromRows([][]any{{[16]byte{1}, 1}, {[16]byte{2}, 2}}))
	if err != nil || copied != 2 {
		t.Errorf("%d rows copied, %v", copied, err)
	}
	b.mustHave(52)
}

// The proxy recognises what the faults look for, in one segment or step by step.
func TestProxy_UnderstandsWhatATransactionHasWritten(t *testing.T) {
	b := newBank(t)
	w := b.proxy()
	conn := b.connect(w.URL())
	if err := b.unfenced(t.Context(), conn, 90); err != nil { // prepares all statements
		t.Fatal(err)
	}
	type seen struct {
		SQL                      []string
		Begins, Touches, Commits bool
	}
	segments := make(chan seen, 100)
	w.intercept(func(p *segment) action {
		s := seen{Begins: p.begins, Touches: p.touches, Commits: p.commits}
		for _, st := range p.sent {
			s.SQL = append(s.SQL, st.sql)
		}
		segments <- s
		return deliver
	})
	balance := "update accounts set balance = $2, version = version + 1 where id = $1"
	want := []seen{
		{[]string{"begin", balance, "commit"}, true, true, true},
		{[]string{"begin"}, true, false, false},
		{[]string{balance}, false, true, false},
		{[]string{balance}, false, false, false},
		{[]string{"commit"}, false, false, true},
		{[]string{balance}, false, true, false},
		{[]string{balance}, false, true, false},
		{[]string{"begin"}, true, false, false},
		{[]string{"commit"}, false, false, false},
	}
	if err := b.unfenced(t.Context(), conn, 80); err != nil {
		t.Fatal(err)
	}
	for _, p := range want[1:] {
		var args []any
		if p.SQL[0] == balance {
			args = []any{b.id, 70}
		}
		sql := map[string]string{balance: balanceSQL, "begin": "begin", "commit": "commit"}[p.SQL[0]]
		if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	w.intercept(nil)
	close(segments)
	var got []seen
	for p := range segments {
		got = append(got, p)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProxy_CloseDropsHeldSegmentsAndRefusesConnections(t *testing.T) {
	b := newBank(t)
	w := b.proxy()
	conn := b.connect(w.URL())
	held, release := w.hold(all)
	defer release()
	sent := concurrently(func() error { return b.unfenced(t.Context(), conn, 10) })
	p := soon(t, "the segment", held)
	w.Close()
	w.Close()
	if err := soon(t, "the sender", sent); err == nil {
		t.Error("no error")
	}
	soon(t, "the end of the segment", p.answered)
	if _, err := pgx.Connect(t.Context(), w.URL()); err == nil {
		t.Error("a closed proxy accepts connections")
	}
	b.mustHave(100)
}

func TestNewProxy_RequiresAnUnencryptedURL(t *testing.T) {
	for _, url := range []string{"postgres://localhost/shop?sslmode=require", "::"} {
		if w, err := NewProxy(url); err == nil {
			w.Close()
			t.Errorf("%s: no error", url)
		}
	}
}

func BenchmarkProxy(b *testing.B) {
	bank := newBank(b)
	for name, url := range map[string]string{"without": bank.url, "with": bank.proxy().URL()} {
		conn := bank.connect(url)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := conn.Exec(b.Context(), "SELECT balance FROM accounts WHERE id = $1", bank.id); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
