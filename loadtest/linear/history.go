// SPDX-License-Identifier: MIT

package linear

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// History is what the clients of one scenario saw, and what the database shows of operations without an
// answer.
type History struct {
	Header     Header
	Operations []Operation
}

// Format and Version identify the file format, in the first line.
const (
	Format  = "shop-history"
	Version = 1
)

// Header is the first line of a file.
type Header struct {
	Format   string          `json:"format"`
	Version  int             `json:"version"`
	Flow     string          `json:"flow"`
	Strategy string          `json:"strategy"`
	Fault    string          `json:"fault"`
	Seed     int64           `json:"seed"`
	Epoch    time.Time       `json:"epoch"`   // when its clock was 0
	Audited  bool            `json:"audited"` // the effects of all operations were read from the database
	Given    json.RawMessage `json:"given"`   // what existed before the first request, in a type of the flow
}

// Operation is one thing that a client wanted, under one key. Each answer to a read is an operation. An
// operation of the service itself (a hold that expires) has the client Service.
type Operation struct {
	Client   int             `json:"client"`
	Key      string          `json:"key"`
	Under    string          `json:"under,omitempty"` // the idempotency key, if it is not Key
	Action   string          `json:"action"`
	Method   string          `json:"method,omitempty"`
	Path     string          `json:"path,omitempty"`
	Body     json.RawMessage `json:"body,omitempty"`
	Objects  []string        `json:"objects,omitempty"`
	Reads    bool            `json:"reads,omitempty"` // it changes nothing
	Replica  int             `json:"replica"`         // that decided it, or got its last attempt
	Call     int64           `json:"call"`            // nanoseconds since the epoch, monotonic
	Return   int64           `json:"return,omitempty"`
	Outcome  string          `json:"outcome"`
	Problem  string          `json:"problem,omitempty"`
	Status   int             `json:"status,omitempty"`
	Answer   json.RawMessage `json:"answer,omitempty"`
	Attempts []Attempt       `json:"attempts,omitempty"`

	Effect Effect          `json:"effect,omitempty"` // what the database shows
	Stored json.RawMessage `json:"stored,omitempty"` // the answer as stored in the database, if the client got none
	Order  int64           `json:"order,omitempty"`  // its place among the writes of the database; 0: none
}

// Service is the client of an operation that no client requested.
const Service = -1

// Attempt is one request that was sent for an operation.
type Attempt struct {
	Replica int    `json:"replica"`
	Start   int64  `json:"start"`
	End     int64  `json:"end"`
	Status  int    `json:"status"`
	Outcome string `json:"outcome"`
	Problem string `json:"problem,omitempty"`
	Sends   int    `json:"sends"`
}

// The outcomes of an operation. After any other outcome the operation may have happened.
const (
	OK       = "ok"
	Rejected = "rejected"
	Open     = "open"
)

// Effect is what the database shows of an operation when the service is gone.
type Effect string

// The effects. An effect that was not read from the database is NotKnown.
const (
	NotKnown Effect = ""
	Yes      Effect = "yes"
	No       Effect = "no"
)

// Fate is what happened to an operation.
type Fate int

// The fates.
const (
	Nothing       Fate = iota // it had no effect, and its answer implies nothing
	Done                      // it happened
	Refused                   // it was refused, with the Problem
	Maybe                     // it happened or did not
	Contradiction             // the answer says that it did not happen, but it did
)

// Fate derives the fate from the outcome and the effect.
func (o *Operation) Fate() Fate {
	undone := o.Outcome == Rejected || o.Outcome == Open
	switch {
	case undone && o.Effect == Yes:
		return Contradiction
	case o.Outcome == OK:
		return Done
	case o.Outcome == Rejected:
		return Refused
	case o.Reads || undone || o.Effect == No:
		return Nothing
	case o.Effect == Yes:
		return Done
	default:
		return Maybe
	}
}

// Forever is the return of an operation without an end.
const Forever = math.MaxInt64

// End returns the latest time at which the operation can have taken effect or been refused.
func (o *Operation) End() int64 {
	if o.Return == 0 || o.Outcome != OK && o.Outcome != Rejected && o.Fate() != Contradiction {
		return Forever
	}
	return o.Return
}

// ReadAnswer fills answer, a pointer to a struct, with the answer to the client, or with the stored one if the
// client got none. It reports whether that succeeded.
func (o *Operation) ReadAnswer(answer any) bool {
	text := o.Answer
	if o.Outcome != OK && o.Outcome != Rejected {
		text = o.Stored
	}
	return json.Unmarshal(text, answer) == nil
}

// Asked fills request, a pointer to a struct, from the body of the request. It reports whether that
// succeeded.
func (o *Operation) Asked(request any) bool { return json.Unmarshal(o.Body, request) == nil }

// PathIs reports whether the operation has this method, and a path that matches a pattern such as
// /v1/orders/*/cancel. It returns the parts of the path in place of the stars.
func (o *Operation) PathIs(method, pattern string) (places []string, is bool) {
	path, want := strings.Split(o.Path, "/"), strings.Split(pattern, "/")
	if o.Method != method || len(path) != len(want) {
		return nil, false
	}
	for i, part := range want {
		switch {
		case part == "*":
			places = append(places, path[i])
		case part != path[i]:
			return nil, false
		}
	}
	return places, true
}

// Raw returns a text as it is written into a history: JSON unchanged, any other text as a JSON string.
func Raw(text []byte) json.RawMessage {
	switch {
	case len(text) == 0:
		return nil
	case json.Valid(text):
		return text
	}
	quoted, _ := json.Marshal(string(text)) // a string never fails
	return quoted
}

// last is the last line of a file. A file without it is incomplete.
type last struct {
	Operations *int `json:"operations"`
}

// Write writes a history: the header, a line for each operation, and a last line with the number of operations.
func Write(to io.Writer, h History) error {
	h.Header.Format, h.Header.Version = Format, Version
	lines, n := json.NewEncoder(to), len(h.Operations)
	lines.SetEscapeHTML(false)
	err := lines.Encode(h.Header)
	for i := 0; i < n && err == nil; i++ {
		err = lines.Encode(h.Operations[i])
	}
	if err == nil {
		err = lines.Encode(last{&n})
	}
	return err
}

// lineMax bounds a line of a file: the answer to an operation is at most 1 MiB.
const lineMax = 8 << 20

// Read reads a whole history, one line at a time.
func Read(from io.Reader) (h History, err error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, lineMax)
	n, ended := 0, false
	for lines.Scan() {
		n++
		switch {
		case ended:
			return h, fmt.Errorf("line %d: text after the last line", n)
		case n == 1:
			err = readHeader(lines.Bytes(), &h.Header)
		default:
			ended, err = h.readLine(lines.Bytes())
		}
		if err != nil {
			return h, fmt.Errorf("line %d: %w", n, err)
		}
	}
	switch {
	case lines.Err() != nil:
		return h, fmt.Errorf("line %d: %w", n+1, lines.Err())
	case n == 0:
		return h, errors.New("the file is empty")
	case !ended:
		return h, fmt.Errorf("the file is incomplete: it ends after line %d, without the line that has the number of operations", n)
	}
	return h, nil
}

func readHeader(text []byte, h *Header) error {
	if json.Unmarshal(text, h) != nil || h.Format != Format {
		return fmt.Errorf("not a history: no header with the format %q", Format)
	}
	if h.Version != Version {
		return fmt.Errorf("the format has version %d; this program reads version %d", h.Version, Version)
	}
	return nil
}

// readLine reads an operation, or the last line.
func (h *History) readLine(text []byte) (ended bool, err error) {
	var line struct {
		last
		Operation
	}
	if err := json.Unmarshal(text, &line); err != nil {
		return false, fmt.Errorf("not an operation: %w", err)
	}
	switch n := line.Operations; {
	case n != nil && *n != len(h.Operations):
		return false, fmt.Errorf("the last line counts %d operations, but the file has %d", *n, len(h.Operations))
	case n != nil:
		return true, nil
	case line.Key == "":
		return false, errors.New("an operation without a key")
	case line.Call < 0 || line.Return != 0 && line.Return < line.Call:
		return false, fmt.Errorf("%s: the return is before the call", line.Key)
	}
	h.Operations = append(h.Operations, line.Operation)
	return false, nil
}
