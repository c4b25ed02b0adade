package loadtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// ClockTolerance is how far the clock of a database may be from that of the clients. They share a
// machine, so that it covers clocks that are read coarsely, such as MongoDB's.
const ClockTolerance = 50 * time.Millisecond

// Untimely lists the answers whose effect, by the time that the service wrote, was not made while its client
// waited for it: between the first attempt and the answer that decided the key. moments names the field
// of an answer that has this time; an action that is not there has none. That the database has the time that was
// answered, I-BODY says.
func (h *History) Untimely(records []Record, moments map[Action]string) (wrong []string) {
	tolerance := ClockTolerance + set(h.Epoch, time.Now(), h.Now()).Abs()
	for _, r := range records {
		field := moments[r.Action]
		if r.Outcome != OK || r.Reads || field == "" {
			continue
		}
		begun, answered := r.Times()
		at, err := momentIn(r.Body, field)
		since := at.Sub(h.Epoch)
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Sprintf("%s: no time in %s: %s", r.Key, field, strings.TrimSpace(string(r.Body))))
		case since < begun-tolerance || since > answered+tolerance:
			wrong = append(wrong, fmt.Sprintf("%s: %s is %v after the first request, and %v before the answer", r.Key, field, since-begun, answered-since))
		}
	}
	return wrong
}

// momentIn is a time in a JSON object.
func momentIn(body []byte, field string) (at time.Time, err error) {
	var answer map[string]json.RawMessage
	if err := json.Unmarshal(body, &answer); err != nil {
		return at, err
	}
	return at, json.Unmarshal(answer[field], &at)
}

// set is by how much the clock of the machine was set while so much time passed. The time of a history is
// monotonic, that of a database is not.
func set(from, to time.Time, passed time.Duration) time.Duration {
	return to.Round(0).Sub(from.Round(0)) - passed
}
