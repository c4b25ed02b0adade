// SPDX-License-Identifier: MIT

package idempotency_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"shop/locking/idempotency"
)

func TestParseKey_BareAndQuotedAreOneKey(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		`abc`:                          `abc`,
		`"abc"`:                        `abc`,
		" \tabc ":                      `abc`,
		`"a\"b\\c"`:                    `a"b\c`,
		`"with space"`:                 `with space`,
		`a"b`:                          `a"b`, // a quote elsewhere than at the beginning is a plain character
		strings.Repeat("k", 255):       strings.Repeat("k", 255),
		`"` + strings.Repeat("k", 255): "", // no closing quote
		strings.Repeat("k", 256):       "",
		``:                             "",
		`""`:                           "",
		`"abc`:                         "",
		`"abc"; a=1`:                   "",
		`"a\bc"`:                       "",
		`"abc\`:                        "",
		"a\x00b":                       "",
		"a\nb":                         "",
		"schlüssel":                    "",
	} {
		got, err := idempotency.ParseKey(header)
		if (err != nil) != (want == "") || err == nil && got != want {
			t.Errorf("%q: %q, %v, want %q", header, got, err, want)
		}
		if err != nil && !errors.Is(err, idempotency.ErrKey) {
			t.Errorf("%q: %v, want ErrKey", header, err)
		}
	}
}

// FuzzParseKey checks that an accepted key is valid, and that its quoted form is the same key.
func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{`abc`, `"a\"b"`, `"`, ` x `, `\`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		key, err := idempotency.ParseKey(header)
		if err != nil {
			return
		}
		if err := (idempotency.Request{Client: uuid.UUID{1}, Key: key, Fingerprint: [32]byte{1}}).Check(); err != nil {
			t.Errorf("%q was accepted: %v", header, err)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := idempotency.ParseKey(quoted); again != key || err != nil {
			t.Errorf("%q and %q are %q and %q, %v", header, quoted, key, again, err)
		}
	})
}

func TestFingerprint_DependsOnTheOperationAndTheIntent(t *testing.T) {
	t.Parallel()
	type pay struct{ Amount int64 }
	base, err := idempotency.Fingerprint("POST /payments", pay{1})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		operation string
		intent    any
		same      bool
	}{
		"the same":          {"POST /payments", pay{1}, true},
		"another amount":    {"POST /payments", pay{2}, false},
		"another operation": {"POST /refunds", pay{1}, false},
		"moved boundary":    {"POST /payments\n", "x", false},
	} {
		got, err := idempotency.Fingerprint(c.operation, c.intent)
		if err != nil || (got == base) != c.same {
			t.Errorf("%s: equal %v, %v", name, got == base, err)
		}
	}
	if _, err := idempotency.Fingerprint("POST", func() {}); err == nil {
		t.Error("no error for an intent without JSON")
	}
}

// A request without a Client, and one without a Fingerprint, would get the reply of another. Status 0 cannot be sent.
func TestCheck_RefusesWhatIsNotSet(t *testing.T) {
	t.Parallel()
	whole := idempotency.Request{Client: uuid.UUID{1}, Key: "k", Fingerprint: [32]byte{1}}
	for part, clear := range map[string]func(*idempotency.Request){
		"":            func(*idempotency.Request) {},
		"Client":      func(r *idempotency.Request) { r.Client = uuid.Nil },
		"Fingerprint": func(r *idempotency.Request) { r.Fingerprint = [32]byte{} },
	} {
		r := whole
		clear(&r)
		if err := r.Check(); errors.Is(err, idempotency.ErrIncomplete) != (part != "") || err != nil && !strings.Contains(err.Error(), "Request."+part) {
			t.Errorf("without its %s: %v", part, err)
		}
	}
	for status, ok := range map[int]bool{0: false, 201: true, -1: true} {
		if err := (idempotency.Reply{Status: status}).Check(); errors.Is(err, idempotency.ErrIncomplete) == ok {
			t.Errorf("status %d: %v", status, err)
		}
	}
	for _, refusal := range []error{nil, errors.New("sold out")} {
		if reply, err := idempotency.JSON("x", refusal); err != nil || reply.Check() != nil {
			t.Errorf("JSON: %+v, %v", reply, err)
		}
	}
}
