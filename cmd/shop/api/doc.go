// SPDX-License-Identifier: MIT

// Package api serves the shop over HTTP. Only packages lab and reference use status codes beside it.
//
// The question: how does a client that may lose any reply learn what happened to its money?
//
// The invariant: a reply never claims more than is known. Each request that
// changes something carries an Idempotency-Key, and has one of four outcomes:
//
//	ok        2xx: it happened, and is committed together with this answer
//	rejected  a stored refusal, or a request that was never valid: it did not happen
//	open      busy, lost, stale, fence-epoch, rate-limited, request-timeout: this attempt did nothing, the key is still free
//	unknown   in-progress, outcome-unknown, timeout, internal, no reply
//
// The client resolves both open and unknown by sending the same key again. The
// stored replies (ok, out-of-stock, purchase-limit, price-changed, stock-limit, already-cancelled, insufficient-funds, expired,
// already-settled) are then replayed byte for byte.
//
// # The path of a request
//
//	net/http ── header limits, timeouts
//	  endBody ── bounds the rest of a body after the reply to one second
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
//	                          keys ── bounds the client's stored keys  429
//	                            handler ── one call into the domain
//
// Cheap checks come first. No body is read before its client is authenticated, and
// no oversized body is parsed.
//
// # Limits
//
// All resources of the server are bounded, and one client cannot starve the
// others. http_requests_refused_total counts refusals by the name in the first column.
//
//	unknown_keys  20/s  --unknown-keys      failed lookups of one remote address (IPv6: /64), then 429 without
//	                                        a lookup. A key that was valid at this replica is exempt. Behind a
//	                                        proxy all clients share its address: limit failures there
//	              4     lookupsMax          concurrent lookups of keys that were never valid here; others wait.
//	                                        Keys that were valid have the same number of slots of their own
//	client_rate   1000/s --rate-limit       requests of one client, then 429
//	client_share  64    --max-per-client    requests of one client in flight, including those whose body is being
//	                                        read, then 429; by default a quarter of --max-in-flight
//	body_time     5 s   --request-timeout   from the head of the request to the end of its body, then 408
//	at_work       256   --max-in-flight     requests of all clients after their bodies have been read, then 503 busy
//	              10000 --max-conns         open connections, or what the limit of open files leaves beside the pools; then the
//	                                        longest idle one is closed, or the new one (http_connections_shed_total)
//	              half  --max-conns-per-address  open connections of one remote address (IPv6: /64)
//	              16 KiB Limits.Body        one body, then 413; so one client's bodies hold 1 MiB
//
//	stored_keys   1000000 --max-keys        stored keys of one client, in PostgreSQL and in MongoDB each, then 429 for a new
//	                                        key; known keys get their replies. Counted at most every 30 s, so a client may
//	                                        exceed it by 30 s of its rate and its requests in flight, at each replica
//
// All limits but stored_keys, which counts in the database, are per replica. Probes are exempt: a full server is alive.
//
// # Failures
//
//	the client disconnects      its context is cancelled; the domain commits on a detached context,
//	                            so an order is complete or does not exist
//	the client closes only its  the same, since net/http cannot tell it from a disconnect: 503 outcome-unknown (a read:
//	side of the connection      503 busy). A client keeps its side open until the answer
//	the deadline passes         504 timeout: unknown, because the COMMIT may be on its way
//	the commit's reply is lost  503 outcome-unknown
//	Redis is down               purchases continue with row locks; /readyz reports degraded, even before the first purchase
//	a lock in Redis stays busy  purchases of its product wait for it (2 s), then continue with row locks
//	etcd is down                transfers: 503 busy, without a wait once the breaker is open; replays, reads and
//	                            purchases continue; /readyz reports degraded, transfers unreachable, and stays 200
//	etcd was wiped or restored  transfers: 503 fence-epoch, until an operator runs shop fence-epoch
//	MongoDB is down             wallets: 503 busy, without a wait after a few seconds; all else continues; /readyz
//	                            reports degraded, wallets unreachable, and stays 200
//	the bonus service is down   credits of a wallet: 503 busy, and nothing was credited
//	PostgreSQL refuses          503 busy with Retry-After, nothing was done; /readyz returns 503
//	PostgreSQL does not reply   when the deadline passes: 503 busy if the API key was being looked up, else 504; /readyz returns 503
//	a body arrives slowly       408 when the deadline passes, nothing was done; it takes no slot of at_work
//	a bug                       500 with a fixed text; the log has the stack, the client has the request id
//	the log is not read         its lines are dropped and counted (log_lines_lost_total); no request waits for it
//	SIGTERM, SIGHUP             /readyz returns 503, the listener closes, bodies that take more than another second get
//	                            503 busy, requests at work finish, then the pools close
//
// # Keys
//
// An API key identifies a client: 256 random bits, sent as Authorization: Bearer.
// Only its SHA-256 is stored. This server speaks plain HTTP, so put TLS in front of
// it. A rotated key keeps working for at most five seconds (keyTTL). A client reads and
// changes only its own orders, transfers, accounts and wallets; those of others get
// 404. One exception: any client can name an account or wallet as the payee, so a
// request to debit another client's gets 403. Ownership is checked inside the
// transaction that would move the money.
//
// An Idempotency-Key is one intent of its client, on any route. Orders and transfers
// store their keys in one table (package pgtx): if a client uses a key for both by
// mistake, it gets 422 idempotency-key-reused, and the key has one effect. Wallets store
// their keys in MongoDB, where the same key is another intent.
//
// # Odd requests
//
//	an empty Idempotency-Key             400 missing-idempotency-key, as without one
//	two headers Idempotency-Key          400, equal or not
//	two headers Content-Type             415, equal or not
//	an integer written as 2.0            2, as in JSON Schema; with an exponent 400
//	a query that cannot be unescaped     400; so is an unknown or repeated parameter
//	Content-Length, Transfer-Encoding    net/http reads the chunks (RFC 9112, 6.3) and ignores the length. The connection
//	                                     closes after a chunked body, so no second request can be smuggled behind it
//
// # Names
//
// Accounts, transfers and wallets are named by UUIDs in upper or lower case, bare or in
// braces. They are parsed first, so each spelling leads to the same lock, row and
// fingerprint.
//
// One table (table.go) maps errors to replies with errors.Is and errors.As. An error
// that is not in the table is a 500 with a fixed text.
//
// The routes are generated from openapi.yaml: edit it first, then run go generate. Package
// reference serves it as a document and as a page. It has an example of each problem of
// each operation, which the tests compare with the error table and with every reply.
// docs/security.md lists the security requirements with their tests.
package api

//go:generate go tool oapi-codegen -config oapi-codegen.yaml -o api.gen.go openapi.yaml
//go:generate go tool gofumpt -w api.gen.go
