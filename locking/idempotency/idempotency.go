package idempotency

import (
	"errors"
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
