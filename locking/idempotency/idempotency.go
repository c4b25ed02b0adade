// Package idempotency has the words for a request that takes effect once,
// however often it is sent.
//
// # The question
//
// A client sends a payment and gets no answer. It cannot know whether the payment
// happened, so it sends the request again. The second request must not pay again.
//
// # The invariant
//
// For each (client, key) at most one effect is ever committed, and every answer
// that reports this effect, or its refusal, has the same bytes.
//
// # How
//
// The client makes a key, one for each intent, and sends the same key with each
// repetition. The server commits the key, a fingerprint of the request, and the
// reply in the transaction of the effect. Written before it, a key without an
// effect would block its client for ever; written after it, the effect could
// happen twice. Package pgtx does this in PostgreSQL, package wallet in MongoDB.
//
//	what arrives                                the client gets
//	a new key                                   the effect, or a refusal, and the reply is stored
//	the same key and fingerprint, later         the stored reply, marked as replayed
//	the same key, another fingerprint           ErrKeyReused; nothing happens
//	the same key while the first is running     the first one's reply, or ErrInProgress after a bounded wait
//	a key of another client                     its own effect: keys of two clients never meet
//	no key, or an unreadable one                ErrKey; nothing happens
//
// Only what was decided is stored: an effect, or a refusal such as "out of
// stock". A time-out, a busy lock and an unknown outcome are not, since the same
// key must be able to succeed later.
//
// Sources: the Idempotency-Key header field (draft-ietf-httpapi-idempotency-key-header);
// B. Leach, "Implementing Stripe-like Idempotency Keys in Postgres" (2017).
package idempotency

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// Request names one intent of one client. The same Client and Key is the same
// intent; with another Fingerprint it is ErrKeyReused.
type Request struct {
	Client      uuid.UUID
	Key         string   // see ParseKey and Check
	Fingerprint [32]byte // of what is asked; see Fingerprint
}

// Reply is the answer that is committed with the effect, and returned byte for
// byte to each repetition. Status and Body mean nothing to the packages that store them.
type Reply struct {
	Status   int
	Body     []byte
	Replayed bool // it was stored by an earlier request; not stored itself
}

var (
	// ErrKey is a missing or unreadable key. Nothing happened.
	ErrKey = errors.New("idempotency: the key must be 1 to 255 printable ASCII characters")
	// ErrKeyReused is a key whose first request was another one. Nothing happened.
	ErrKeyReused = errors.New("idempotency: the key was used for another request")
	// ErrInProgress is a key whose first request has not ended. Its outcome is
	// unknown: the client sends the same key again.
	ErrInProgress = errors.New("idempotency: a request with this key is in progress")
)

// KeyBytesMax is the length of the longest key.
const KeyBytesMax = 255

// Check returns ErrKey unless the key can be stored as it is.
func (r Request) Check() error {
	if n := len(r.Key); n < 1 || n > KeyBytesMax || strings.ContainsFunc(r.Key, unprintable) {
		return ErrKey
	}
	return nil
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }

// ParseKey reads the value of the header field Idempotency-Key. The draft
// standard has a quoted string (RFC 8941, section 3.3.3), most clients send the
// characters alone. Both are accepted, and "a" and a are one key: a client that
// changes its library must not pay twice. Everything else is ErrKey.
func ParseKey(header string) (string, error) {
	key := strings.Trim(header, " \t")
	if strings.HasPrefix(key, `"`) {
		var ok bool
		if key, ok = unquote(key); !ok {
			return "", fmt.Errorf("%w, bare or as a quoted string (RFC 8941)", ErrKey)
		}
	}
	return key, Request{Key: key}.Check()
}

// unquote reads an sf-string: only \" and \\ are escaped, and nothing follows the closing quote.
func unquote(s string) (string, bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return b.String(), i == len(s)-1
		case '\\':
			i++
			if i == len(s) || (s[i] != '"' && s[i] != '\\') {
				return "", false
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}

// Fingerprint identifies what a request asks for: its operation (method and
// route) and its intent, as JSON. Two requests with one key must have equal
// fingerprints. Pass parsed values, not the bytes of the body, so that white
// space and the order of members do not count. The fields of intent must be exported.
func Fingerprint(operation string, intent any) ([32]byte, error) {
	data, err := json.Marshal(intent)
	if err != nil {
		return [32]byte{}, fmt.Errorf("idempotency: fingerprint of %s: %w", operation, err)
	}
	return sha256.Sum256(append([]byte(operation+"\n"), data...)), nil
}
