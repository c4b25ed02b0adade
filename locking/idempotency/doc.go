// Package idempotency has the types and rules of a request that takes effect once,
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
