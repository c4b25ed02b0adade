// Package api serves the shop over HTTP. No other package knows status codes.
//
// The question: how does a client that may lose any reply learn what happened to its money?
//
// The invariant: a reply never claims more than is known. Each request that
// changes something carries an Idempotency-Key, and ends as one of
//
//	ok        2xx: it happened, and is committed together with this answer
//	rejected  a stored refusal, or a request that was never valid: it did not happen
//	open      busy, lost, stale, fence-epoch, rate-limited, request-timeout: this attempt did nothing, the key is still free
//	unknown   in-progress, outcome-unknown, timeout, internal, no reply
//
// Open and unknown are resolved in the same way: send the same key again. The
// stored replies (ok, out-of-stock, already-cancelled, insufficient-funds, expired,
// already-settled) are then replayed byte for byte.
//
// # The way of a request
//
//	net/http ── header limits, timeouts
//	  body's end ── bounds the rest of a body after the reply to one second
//	    headers ── request id, no-store, nosniff
//	      observe ── one log line, metrics; writes the problem for an error
//	        recover ── a panic becomes an error
//	          operation ── finds the operation in openapi.yaml    404, 405
//	            deadline ── bounds the request's time             504 timeout
//	              authenticate ── finds the client by its key     401, 403, 429, 503 busy
//	                rate ── bounds the client's requests per second   429
//	                  share ── bounds the client's requests in flight 429
//	                    body ── checks size, time, type, JSON     413, 408, 415, 400
//	                      admit ── bounds all requests in flight  503 busy
//	                        validate ── against openapi.yaml      400, 422
//	                          handler ── one call into the domain
//
// Cheap checks come first. No body is read before its client is authenticated, and
// no body that is too large is parsed.
//
// # Limits
//
// All resources that a client can take are bounded, and one client cannot starve the
// others. http_requests_refused_total counts refusals by the name in the first column.
//
//	unknown_keys  20/s  --unknown-keys      failed lookups of one remote address (IPv6: /64), then 429 without
//	                                        a lookup. A key that was valid at this replica is exempt. Behind a
//	                                        proxy all clients have its address: limit failures there
//	              4     lookupsMax          concurrent lookups of keys that were never valid here; more wait. The
//	                                        same number for keys that were, in a queue of their own
//	client_rate   1000/s --rate-limit       requests of one client, then 429
//	client_share  64    --max-per-client    requests of one client in flight, those whose body is being read
//	                                        included, then 429; by default a quarter of --max-in-flight
//	body_time     5 s   --request-timeout   from the head of the request to the end of its body, then 408
//	at_work       256   --max-in-flight     requests of all clients after their bodies have been read, then 503 busy
//	              16 KiB Limits.Body        one body, then 413; so one client's bodies hold 1 MiB
//
// All limits are per replica. Probes are exempt: a full server is alive.
//
// # Failures
//
//	the client disconnects      its context ends; the domain commits on a context of its own,
//	                            so an order is complete or does not exist
//	the deadline passes         504 timeout: unknown, since the COMMIT may be on its way
//	the commit's reply is lost  503 outcome-unknown
//	Redis is down               purchases go on with row locks; /readyz says degraded, also before the first of them
//	a lock in Redis stays busy  its product's purchases wait for it (2 s), then go on with row locks
//	etcd is down                to move money: 503 busy, without a wait once the breaker is open; replays, reads
//	                            and purchases go on; /readyz says degraded, transfers unreachable, and stays 200
//	etcd was wiped or restored  to move money: 503 fence-epoch, until an operator has run shop fence-epoch
//	MongoDB is down             wallets: 503 busy, without a wait after a few seconds; all else goes on; /readyz says
//	                            degraded, wallets unreachable, and stays 200
//	the bonus service is down   to credit a wallet: 503 busy, and nothing was credited
//	PostgreSQL refuses          503 busy with Retry-After, nothing was done; /readyz says 503
//	PostgreSQL does not reply   when the deadline passes: 503 busy while the API key was looked up, else 504; /readyz says 503
//	a body comes slowly         408 when the deadline passes, nothing was done; it takes no slot of at_work
//	a bug                       500 with a fixed text; the log has the stack, the client has the request id
//	SIGTERM                     /readyz says 503, the listener closes, bodies that do not end within a second are
//	                            503 busy, requests at work end, then the pools close
//
// # Keys
//
// An API key identifies a client: 256 random bits, sent as Authorization: Bearer.
// Only its SHA-256 is stored. This server speaks plain HTTP, so put TLS in front of
// it. A rotated key works for at most five seconds more (keyTTL). A client reads and
// changes only its own orders, transfers, accounts and wallets; those of others are
// 404. One exception: an account or wallet can be named as the payee by any client,
// so a request to debit one of another client is 403. Ownership is checked inside the
// transaction that would move the money.
//
// An Idempotency-Key is one intent of its client, on any route. Orders and transfers
// store their keys in one table (package pgtx): a key that a client uses for both by
// mistake is 422 idempotency-key-reused, and has one effect. Wallets store their keys
// in MongoDB: there the same key is another intent.
//
// # Odd requests
//
//	an empty Idempotency-Key             400 missing-idempotency-key, the same as none
//	two headers Idempotency-Key          400, equal or not
//	two headers Content-Type             415, equal or not
//	a query that cannot be unescaped     400; so is a parameter that is unknown or comes twice
//	Content-Length, Transfer-Encoding    net/http reads the chunks (RFC 9112, 6.3) and ignores the length. A chunked body
//	                                     ends its connection, so that no second request can be smuggled behind it
//
// # Names
//
// Accounts, transfers and wallets are named by UUIDs in upper or lower case, bare or in
// braces. They are parsed first, so that each spelling of an account leads to the same
// lock, row and fingerprint.
//
// One table (table.go) maps errors to replies with errors.Is and errors.As. An error
// that is not in the table is a 500 with a fixed text.
//
// The routes are generated from openapi.yaml: edit it first, then run go generate.
package api

//go:generate go tool oapi-codegen -config oapi-codegen.yaml -o api.gen.go openapi.yaml
//go:generate go tool gofumpt -w api.gen.go
