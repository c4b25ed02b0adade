// SPDX-License-Identifier: MIT

package traffic

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// ClockTolerance is how far the clock of a database may be from the clients' clock. Both run on one
// machine, so the tolerance covers only clocks with a coarse resolution, such as MongoDB's.
const ClockTolerance = 50 * time.Millisecond

// Untimely lists the successes whose time of effect, as the service wrote it, is not between the first
// attempt and the answer that decided the key. moments names, for each action, the field of the answer
// with that time; other actions are not checked. That the database stores the same time is checked by
// I-BODY.
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

// momentIn reads the time in a field of a JSON object.
func momentIn(body []byte, field string) (at time.Time, err error) {
	var answer map[string]json.RawMessage
	if err = json.Unmarshal(body, &answer); err == nil {
		err = json.Unmarshal(answer[field], &at)
	}
	return at, err
}

// set returns by how much the machine's clock was set between two readings, given the monotonic time that
// passed. The times of a history are monotonic, those of a database are not.
func set(from, to time.Time, passed time.Duration) time.Duration {
	return to.Round(0).Sub(from.Round(0)) - passed
}
