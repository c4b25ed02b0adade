// SPDX-License-Identifier: MIT

// Package idempotency defines the types and rules of a request that takes effect once,
// however often it is sent.
//
// # The question
//
// A client sends a payment and gets no answer. It cannot know whether the payment
// happened, so it sends the request again. The second request must not pay again.
//
// # The invariant
//
// For each (client, key) at most one effect is ever committed, and all answers that
// report this effect, or its refusal, have the same bytes.
//
// # How
//
// The client makes one key for each intent, and sends it with every retry. The server
// commits the key, a fingerprint of the request, and the reply in the transaction of
// the effect. If the key were committed earlier, a key without an effect could block
// its client for ever. If it were committed later, the effect could happen twice.
// Package pgtx does this in PostgreSQL.
//
//	what arrives                                the client gets
//	a new key                                   the effect, or a refusal, and the reply is stored
//	the same key and fingerprint, later         the stored reply, marked as replayed
//	the same key, another fingerprint           ErrKeyReused; nothing happens
//	the same key while the first is running     the first request's reply, or ErrInProgress after a bounded wait
//	a key that another client has used          the effect: each client has keys of its own
//	no key, or an unreadable one                ErrKey; nothing happens
//
// Only final outcomes are stored: an effect, or a refusal such as "out of stock". A
// time-out, a busy lock and an unknown outcome are not, because the same key must be
// able to succeed later.
//
// Sources: the Idempotency-Key header field (draft-ietf-httpapi-idempotency-key-header);
// B. Leach, "Implementing Stripe-like Idempotency Keys in Postgres" (2017).
package idempotency
