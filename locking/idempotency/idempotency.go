package idempotency

import (
	"errors"
	"strings"

	"github.com/google/uuid"
)

// Request identifies one intent of one client. Requests with the same Client and Key
// are the same intent; if their Fingerprints differ, the later one gets ErrKeyReused.
type Request struct {
	Client      uuid.UUID
	Key         string   // see ParseKey and Check
	Fingerprint [32]byte // of the intent; see Fingerprint
}

// Reply is the answer that is committed with the effect, and returned byte for byte to
// every retry. The packages that store it do not interpret Status and Body.
type Reply struct {
	Status   int
	Body     []byte
	Replayed bool // an earlier request has stored it; not part of what is stored
}

// Again returns the reply for a request that repeats another.
func (r Reply) Again() Reply {
	r.Replayed = true
	return r
}

var (
	// ErrKey reports a missing or invalid key. Nothing happened.
	ErrKey = errors.New("idempotency: the key must be 1 to 255 printable ASCII characters")
	// ErrKeyReused reports a key that was used for a different request. Nothing happened.
	ErrKeyReused = errors.New("idempotency: the key was used for another request")
	// ErrInProgress reports a key whose first request has not finished. The outcome is
	// unknown: the client sends the same key again.
	ErrInProgress = errors.New("idempotency: a request with this key is in progress")
)

// KeyBytesMax is the length of the longest valid key.
const KeyBytesMax = 255

// Check returns ErrKey if the key is invalid.
func (r Request) Check() error {
	if n := len(r.Key); n < 1 || n > KeyBytesMax || strings.ContainsFunc(r.Key, unprintable) {
		return ErrKey
	}
	return nil
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }
