// Package api is the shop over HTTP: the only place that knows what a status code is.
//
// The question: how does a client that may lose any answer learn what happened to its money?
//
// The invariant: an answer never claims more than is known. Each request that
// changes something carries an Idempotency-Key, and ends as one of
//
//	ok        2xx: it happened, and is committed together with this answer
//	rejected  a stored refusal, or a request that was never valid: it did not happen
//	open      busy, lost, stale, fence-source, rate-limited: this attempt did nothing, the key is still free
//	unknown   in-progress, outcome-unknown, timeout, internal, no answer at all
//
// Open and unknown are resolved in the same way: send the same key again. The
// stored answers (ok, out-of-stock, already-cancelled, insufficient-funds, expired,
// already-settled) are then replayed byte for byte.
//
// # The way of a request
//
//	net/http ── header limits, timeouts
//	  body's end ── what a client still sends after its answer has a second
//	    headers ── request id, no-store, nosniff
//	      observe ── one log line, metrics; writes the problem when an error came back
//	        recover ── a panic becomes an error
//	          operation ── which operation of openapi.yaml is it? none: 404, 405
//	            deadline ── ends the work with the request        504 timeout
//	              authenticate ── whose key is it?                401, 403, 429, 503 busy
//	                rate ── how many has this client sent?        429
//	                  share ── how many has it under way?         429
//	                    body ── size, time, type, is it JSON?     413, 408, 415, 400
//	                      admit ── is there room for one more?    503 busy
//	                        validate ── against openapi.yaml      400, 422
//	                          handler ── a call into the domain, and nothing else
//
// What is cheap and known early is checked first; no body is read before its
// client is known, and nothing is parsed that is too large.
//
// # Limits
//
// What a client can make the server hold has a bound, and one client cannot take
// what others need. http_requests_refused_total counts refusals by the name in the first column.
//
//	unknown_keys  20/s  --unknown-keys      failed lookups of one remote address (IPv6: /64), then 429 without
//	                                        a lookup. A key that was valid at this replica is exempt. Behind a
//	                                        proxy its address is that of every client: limit failures there
//	              4     lookupsMax          lookups at once of keys that were never valid here; more wait. As many
//	                                        of keys that were, in a queue of their own
//	client_rate   1000/s --rate-limit       requests of one client, then 429
//	client_share  64    --max-per-client    requests of one client under way, bodies that are being read included,
//	                                        then 429; by default a quarter of --max-in-flight
//	body_time     5 s   --request-timeout   from the head of the request to the end of its body, then 408
//	at_work       256   --max-in-flight     requests of all clients whose bodies have been read, then 503 busy
//	              16 KiB Limits.Body        one body, then 413; so one client's bodies hold 1 MiB
//
// All are of one replica. The probes pass them: a full server is alive.
//
// # Failures
//
//	the client goes away        its context ends; the domain commits on a context of its own,
//	                            so an order is whole or was never there
//	the deadline passes         504 timeout: unknown, since the COMMIT may be on its way
//	the commit's answer is lost 503 outcome-unknown
//	Redis is down               purchases go on with row locks; /readyz says degraded, also before the first of them
//	a lock in Redis stays busy  its product's purchases wait for it (2 s), then go on with row locks
//	etcd is down                to move money: 503 busy, and at once when the first has noticed; replays, reads
//	                            and purchases go on; /readyz says degraded, transfers unreachable, and stays 200
//	etcd was wiped or restored  to move money: 503 fence-source, until an operator has run shop fence-epoch
//	MongoDB is down             wallets: 503 busy, and after a few seconds at once; all else goes on; /readyz says
//	                            degraded, wallets unreachable, and stays 200
//	the bonus is not answered   to credit a wallet: 503 busy, and nothing was credited
//	PostgreSQL refuses          503 busy with Retry-After, nothing was done; /readyz says 503
//	PostgreSQL is silent        when the deadline passes: 503 busy while the API key was looked up, else 504; /readyz says 503
//	a body comes slowly         408 when the deadline passes, nothing was done; no place was held
//	a bug                       500 with a fixed text; the log has the stack, the client has the request id
//	SIGTERM                     /readyz says 503, the listener closes, bodies that do not end within a second are
//	                            503 busy, requests at work end, then the pools close
//
// # Keys
//
// A client is who holds its API key, 256 random bits sent as Authorization:
// Bearer. Only the SHA-256 is kept. Whoever sees the key is the client, so TLS
// belongs in front of this server, which speaks plain HTTP. A key that was
// rotated works for at most five seconds more (keyTTL). A client sees and
// moves only what is its own: what is somebody else's is 404, as if it were not.
// Money comes to another's account or wallet too, so there is one exception: who
// would take it from one is told 403. Whose it is, the transaction says that would move it.
//
// An Idempotency-Key is one intent of its client, whatever the route. Orders and
// transfers store their keys in one table (package pgtx), so that a key which a client
// uses for both by mistake is 422 idempotency-key-reused, and has one effect. Wallets
// store theirs in MongoDB: there the same key is another intent.
//
// # Odd requests
//
//	an empty Idempotency-Key             400 missing-idempotency-key, as if there were none
//	two headers Idempotency-Key          400, equal or not
//	two headers Content-Type             415, equal or not
//	a query that cannot be unescaped     400; so is a parameter that is unknown or comes twice
//	Content-Length, Transfer-Encoding    net/http goes by the chunks (RFC 9112, 6.3) and hides the length. A body that
//	                                     comes in chunks ends its connection, so that nothing can be smuggled behind it
//
// # Names
//
// Accounts, transfers and wallets are named by UUIDs in any case, bare or in braces. They
// are read into values before anything is done with them, so that one account
// has one lock, one row and one fingerprint however a client writes it.
//
// Errors become answers in one table (table.go), which is walked with errors.Is
// and errors.As. An error that nobody put there is a 500 with a fixed text.
//
// The server is generated from openapi.yaml; write there first, then run go generate.
package api

//go:generate go tool oapi-codegen -config oapi-codegen.yaml -o api.gen.go openapi.yaml
//go:generate go tool gofumpt -w api.gen.go
