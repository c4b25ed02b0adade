// SPDX-License-Identifier: MIT

package lab

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// run is a race that the page started, with the messages of its stream.
type run struct {
	id     string
	done   chan struct{} // closed at the end; then result or err is set
	result *Result
	err    error

	mu       sync.Mutex
	messages []message
	more     chan struct{} // closed when there is another message
}

// message is one server-sent event.
type message struct {
	kind string // progress, outage, verdict, or failed
	data []byte
}

func newRun(id string) *run {
	return &run{id: id, done: make(chan struct{}), more: make(chan struct{})}
}

func (r *run) progress(p Progress) { r.send("progress", p) }

// end sends the last message.
func (r *run) end(result *Result, err error) {
	r.result, r.err = result, err
	if err != nil {
		r.send("failed", map[string]string{"error": err.Error()})
	} else {
		verdicts := make([]Verdict, len(result.Lanes))
		for n, l := range result.Lanes {
			verdicts[n] = l.Verdict
		}
		if result.Error != "" {
			r.send("outage", map[string]string{"error": result.Error})
		}
		r.send("verdict", verdicts)
	}
	close(r.done)
}

func (r *run) send(kind string, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // the types above can all be encoded
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, message{kind, data})
	close(r.more)
	r.more = make(chan struct{})
}

// from returns the messages from the one numbered n, and a channel that is closed when there are more.
func (r *run) from(n int) ([]message, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.messages[min(n, len(r.messages)):], r.more
}

// events streams the messages of a run, from the first or from the one after Last-Event-ID, until the last.
func (l *Lab) events(w http.ResponseWriter, r *http.Request) {
	run := l.find(w, r)
	if run == nil {
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(streamLimit)) // the server's own is for short replies
	w.Header().Set("Content-Type", "text/event-stream")
	next := 0
	if last, err := strconv.Atoi(r.Header.Get("Last-Event-ID")); err == nil && last >= 0 {
		if before, _ := run.from(0); last < len(before) { // else it is not an id of this run
			next = last + 1
		}
	}
	for {
		messages, more := run.from(next)
		for _, m := range messages {
			if _, err := fmt.Fprintf(w, "id: %d\nevent: %s\ndata: %s\n\n", next, m.kind, m.data); err != nil {
				return
			}
			next++
		}
		if err := control.Flush(); err != nil {
			return
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		case <-run.done:
			if messages, _ := run.from(next); len(messages) == 0 {
				return
			}
		}
	}
}
