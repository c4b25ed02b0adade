package loadtest

import (
	"cmp"
	"encoding/json"
	"mime"
	"net/http"
	"strings"
)

// Outcome is what one answer says about one key.
type Outcome string

// The outcomes. Only OK and Rejected are final: a key with any other is sent again.
const (
	OK       Outcome = "ok"       // it happened
	Rejected Outcome = "rejected" // it certainly did not, and never will under this key
	Open     Outcome = "open"     // this attempt did nothing; the key may still be used
	Unknown  Outcome = "unknown"  // it may have happened
)

// Final tells whether the key need not be sent again.
func (o Outcome) Final() bool { return o == OK || o == Rejected }

// outcomes says what each problem type means. A type that is not in it is
// Unknown: the conservative answer, and the one that costs another attempt.
//
// The status alone never decides: 409 is out-of-stock (final) or in-progress
// (a duplicate of this request may be committing right now), 503 is busy (nothing
// was done) or outcome-unknown (a COMMIT was sent, and no answer came).
var outcomes = map[string]Outcome{
	// Stored with the key.
	"out-of-stock":       Rejected,
	"already-cancelled":  Rejected,
	"insufficient-funds": Rejected,
	"expired":            Rejected,
	"already-settled":    Rejected,

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
	"fence-epoch":     Open, // an operator has to act
	"rate-limited":    Open,
	"request-timeout": Open,

	"in-progress":     Unknown,
	"outcome-unknown": Unknown,
	"timeout":         Unknown,
	"internal":        Unknown,
}

// Classify tells what an answer means, and the problem type it is about (empty
// for a success, or for an answer that names none).
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

// problemType is the last part of an RFC 9457 type: "/problems/busy" is "busy".
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

// neverDone are statuses of which every reading says that nothing happened, and never will.
var neverDone = map[int]bool{400: true, 401: true, 403: true, 404: true, 405: true, 410: true, 413: true, 415: true, 422: true}

// ClassifyByStatus is for a service that does not speak problem types. It trusts a status
// only where every reading of it says that nothing happened; 409 may be a duplicate in
// progress and is Unknown.
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
