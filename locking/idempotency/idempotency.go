// SPDX-License-Identifier: MIT

package idempotency

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

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
// every retry. The packages that store it do not interpret it, except for Check.
type Reply struct {
	Status   int
	Body     []byte
	Header   map[string]string // those that a replay needs, such as Location; nil: none
	Replayed bool              // an earlier request has stored it; not part of what is stored
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
	// ErrIncomplete reports a Request or a Reply that lacks a part: a bug in the caller, not in its client's request. Nothing
	// happened.
	ErrIncomplete = errors.New("idempotency: incomplete")
	// ErrNotDone marks an error of a transaction that certainly committed nothing, whatever else the error is.
	ErrNotDone = errors.New("idempotency: nothing was done")
)

// KeyBytesMax is the length of the longest valid key.
const KeyBytesMax = 255

// Check returns ErrKey if the key is invalid, and ErrIncomplete if the Client or the Fingerprint is zero. Without a
// Client all clients would share their keys; without a Fingerprint the reply to one request would be that to another.
func (r Request) Check() error {
	switch err := checkKey(r.Key); {
	case err != nil:
		return err
	case r.Client == uuid.Nil:
		return fmt.Errorf("%w: Request.Client is not set (key %q)", ErrIncomplete, r.Key)
	case r.Fingerprint == [32]byte{}:
		return fmt.Errorf("%w: Request.Fingerprint is not set: see Fingerprint (key %q)", ErrIncomplete, r.Key)
	}
	return nil
}

// Check returns ErrIncomplete if the Status is 0, which no server can send, or the Header is not UTF-8 text, which a database
// does not keep.
func (r Reply) Check() error {
	if r.Status == 0 {
		return fmt.Errorf("%w: Reply.Status is not set (body %.100q)", ErrIncomplete, r.Body)
	}
	for name, value := range r.Header {
		if text := name + value; !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return fmt.Errorf("%w: Reply.Header %q is not UTF-8 text", ErrIncomplete, name)
		}
	}
	return nil
}

func checkKey(key string) error {
	if n := len(key); n < 1 || n > KeyBytesMax || strings.ContainsFunc(key, unprintable) {
		return ErrKey
	}
	return nil
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }
