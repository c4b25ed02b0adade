// SPDX-License-Identifier: MIT

package judge

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"shop/loadtest/linear"
	"shop/loadtest/traffic"
)

// HistoryFile is the name of the history in the folder of a scenario.
const HistoryFile = "history.jsonl"

// Written converts records to a history: a write is one operation, and each answer to a read is one. The
// history has no effects from the database.
func Written(header linear.Header, records []traffic.Record) linear.History {
	return effects{}.written(header, records)
}

// WithEffects is Written with what the database shows of the writes. clients are the ids of the clients, by Intent.Client.
func WithEffects(header linear.Header, records []traffic.Record, stored []Stored, clients [][16]byte) linear.History {
	return newEffects(stored, records, clients).written(header, records)
}

func (e effects) written(header linear.Header, records []traffic.Record) linear.History {
	h := linear.History{Header: header}
	for _, r := range records {
		if r.Reads {
			h.Operations = append(h.Operations, readsOf(r)...)
			continue
		}
		o := operationOf(r)
		if header.Audited {
			e.annotate(&o, r)
		}
		h.Operations = append(h.Operations, o)
	}
	return h
}

// requested returns an operation with the request only.
func requested(r traffic.Record) linear.Operation {
	return linear.Operation{
		Client: r.Client, Key: r.Key, Under: r.SharedKey, Action: string(r.Action),
		Method: r.Method, Path: r.Path, Body: linear.Raw(r.Intent.Body), Objects: r.Contends, Reads: r.Reads,
	}
}

// readsOf returns the operations of a read, one for each attempt, since each may show another state.
func readsOf(r traffic.Record) (list []linear.Operation) {
	for _, a := range r.Attempts {
		o := requested(r)
		o.Replica, o.Call, o.Attempts = a.Replica, int64(a.Start), []linear.Attempt{written(a)}
		o.Outcome, o.Problem, o.Status = string(a.Outcome), a.Problem, a.Status
		if a.Outcome.Final() {
			o.Return, o.Answer = int64(a.End), linear.Raw(a.Body)
		}
		list = append(list, o)
	}
	return list
}

// operationOf returns the operation of a write. Its call is the start of the first attempt that may have
// had an effect, and its return is the first final answer.
func operationOf(r traffic.Record) linear.Operation {
	o := requested(r)
	last := r.Last()
	o.Outcome, o.Replica, o.Problem, o.Status = string(r.Outcome), last.Replica, last.Problem, last.Status
	called, returned := false, false
	for _, a := range r.Attempts {
		o.Attempts = append(o.Attempts, written(a))
		if start := int64(a.Start); a.Outcome != traffic.Open && (!called || start < o.Call) {
			o.Call, called = start, true
		}
		if end := int64(a.End); a.Outcome.Final() && a.Outcome == r.Outcome && (!returned || end < o.Return) {
			o.Return, returned = end, true
			o.Replica, o.Problem, o.Status, o.Answer = a.Replica, a.Problem, a.Status, linear.Raw(r.Body)
		}
	}
	if !called && len(r.Attempts) > 0 { // no attempt had an effect: it spans all of them
		o.Call, o.Return = int64(r.Attempts[0].Start), int64(last.End)
		for _, a := range r.Attempts {
			o.Call, o.Return = min(o.Call, int64(a.Start)), max(o.Return, int64(a.End))
		}
	}
	return o
}

func written(a traffic.Attempt) linear.Attempt {
	return linear.Attempt{
		Replica: a.Replica, Start: int64(a.Start), End: int64(a.End),
		Status: a.Status, Outcome: string(a.Outcome), Problem: a.Problem, Sends: a.Sends,
	}
}

// effects finds the effect of a key in the database, and the records that were sent under the key.
type effects struct {
	stored  map[storedKey]Stored
	sharers map[sharedKey][]traffic.Record
	clients [][16]byte // by Intent.Client
}

type storedKey struct {
	client [16]byte
	key    string
}

type sharedKey struct {
	client int
	key    string
}

func newEffects(stored []Stored, records []traffic.Record, clients [][16]byte) effects {
	e := effects{map[storedKey]Stored{}, map[sharedKey][]traffic.Record{}, clients}
	for _, s := range stored {
		e.stored[storedKey{s.Client, s.Key}] = s
	}
	for _, r := range records {
		if !r.Reads {
			shared := sharedKey{r.Client, r.IdempotencyKey()}
			e.sharers[shared] = append(e.sharers[shared], r)
		}
	}
	return e
}

// annotate adds what the database shows: for an acknowledged operation only its place among the writes.
func (e effects) annotate(o *linear.Operation, r traffic.Record) {
	effect, stored := e.of(r)
	if effect == linear.Yes {
		o.Order = stored.Order
	}
	if r.Outcome == traffic.OK {
		return
	}
	if o.Effect = effect; effect == linear.Yes {
		o.Stored = stored.Answer
	}
}

// of returns what the database shows of a record. If two records share a key, the effect belongs to the
// one that was answered ok; if neither was, it is not known to which it belongs.
func (e effects) of(r traffic.Record) (linear.Effect, Stored) {
	s, has := e.stored[storedKey{e.clients[r.Client], r.IdempotencyKey()}]
	sharers := e.sharers[sharedKey{r.Client, r.IdempotencyKey()}]
	switch {
	case !has:
		return linear.No, s
	case len(sharers) == 1 || r.Outcome == traffic.OK:
		return linear.Yes, s
	}
	for _, other := range sharers {
		if other.Outcome == traffic.OK {
			return linear.No, s
		}
	}
	return linear.NotKnown, s
}

// WriteHistory writes the file of a history.
func WriteHistory(name string, h linear.History) error {
	return writeFile(name, func(w io.Writer) error {
		buffered := bufio.NewWriter(w)
		return errors.Join(linear.Write(buffered, h), buffered.Flush())
	})
}

// Draw draws the smallest illegal partitions of a check, each into a file in a folder.
func Draw(ctx context.Context, folder string, checked linear.Result) (err error) {
	smallest := slices.SortedFunc(slices.Values(checked.Failures), func(a, b linear.Failure) int {
		return cmp.Compare(len(a.Steps), len(b.Steps))
	})
	n := 0
	for _, f := range smallest {
		if n == drawings || !f.Drawable() {
			continue
		}
		n++
		name := filepath.Join(folder, fmt.Sprintf("illegal-%d.html", n))
		failed := writeFile(name, func(w io.Writer) error { return f.Draw(ctx, w) })
		if errors.Is(failed, linear.ErrTime) { // the verdict holds without a drawing
			failed = os.Remove(name)
		}
		err = errors.Join(err, failed)
	}
	return err
}

// drawings bounds how many illegal partitions of a scenario are drawn: of ten oversold products, all
// drawings show the same.
const drawings = 3

func writeFile(name string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}
