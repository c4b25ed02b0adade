// SPDX-License-Identifier: MIT

package traffic

import (
	"cmp"
	"encoding/json"
	"mime"
	"net/http"
	"strings"
)

// Outcome is what an answer means for its key.
type Outcome string

// The outcomes. Only OK and Rejected are final: a key with any other outcome is retried.
const (
	OK       Outcome = "ok"       // it happened
	Rejected Outcome = "rejected" // it certainly did not happen, and never will under this key
	Open     Outcome = "open"     // this attempt did nothing; the key may still be used
	Unknown  Outcome = "unknown"  // it may have happened

	// Duplicate: an earlier request with the key had the effect. The Recorder turns it into OK.
	Duplicate Outcome = "duplicate"
)

// Final reports whether the key is decided and need not be retried.
func (o Outcome) Final() bool { return o == OK || o == Rejected }

// outcomes maps each problem type that no flow owns to its outcome; a flow adds its own refusals.
// A type that is not listed is Unknown, the conservative choice: it costs one more attempt.
//
// The status alone never decides. 409 is out-of-stock (final) or in-progress (a duplicate of the request
// may be committing right now). 503 is busy (nothing was done) or outcome-unknown (a COMMIT was sent and
// got no answer).
var outcomes = map[string]Outcome{
	// Refused before anything was read: the same bytes will be refused again.
	"not-found":               Rejected,
	"invalid-request":         Rejected,
	"malformed":               Rejected,
	"missing-idempotency-key": Rejected,
	"idempotency-key-reused":  Rejected,
	"unauthorized":            Rejected,
	"forbidden":               Rejected,
	"method-not-allowed":      Rejected,
	"too-large":               Rejected,
	"unsupported-media-type":  Rejected,

	"busy":            Open,
	"lost":            Open,
	"stale":           Open,
	"fence-epoch":     Open, // until an operator starts a new epoch
	"rate-limited":    Open,
	"request-timeout": Open,

	"in-progress":     Unknown,
	"outcome-unknown": Unknown,
	"timeout":         Unknown,
	"internal":        Unknown,
}

// Classify returns the outcome and the problem type of an answer of a service that uses problem types. The type is empty
// for a success, and for an answer without one.
func Classify(status int, header http.Header, body []byte) (Outcome, string) {
	if status >= 200 && status < 300 {
		return OK, ""
	}
	problem := problemType(header, body)
	if outcome, known := outcomes[problem]; known {
		return outcome, problem
	}
	return Unknown, problem
}

// problemType returns the last part of an RFC 9457 type: "busy" for "/problems/busy".
func problemType(header http.Header, body []byte) string {
	media, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || media != "application/problem+json" {
		return ""
	}
	var problem struct{ Type string }
	if json.Unmarshal(body, &problem) != nil {
		return ""
	}
	return problem.Type[strings.LastIndexByte(problem.Type, '/')+1:]
}

// neverDone are the statuses that can only mean that the request had no effect and never will.
var neverDone = map[int]bool{400: true, 401: true, 403: true, 404: true, 405: true, 410: true, 413: true, 415: true, 422: true}

// ClassifyByStatus classifies answers of a service that does not use problem types. It trusts a status
// only if the status can only mean that nothing happened; 409 is Unknown, since it may be a duplicate in
// progress.
func ClassifyByStatus(status int, header http.Header, body []byte) (Outcome, string) {
	outcome, problem := Classify(status, header, body)
	said := cmp.Or(problem, http.StatusText(status))
	switch _, known := outcomes[problem]; {
	case outcome == OK || known:
		return outcome, problem
	case neverDone[status]:
		return Rejected, said
	case status == http.StatusTooManyRequests:
		return Open, said
	}
	return Unknown, said
}
