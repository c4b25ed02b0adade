// SPDX-License-Identifier: MIT

package target

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"shop/loadtest/traffic"
)

// Answers maps the answers of the service to outcomes. An entry is a status, or a status and the value of a
// field: "409", "409 sold-out". The outcomes of answers that are not listed are:
//
//	2xx                                      ok
//	400 401 403 404 405 410 413 415 422      rejected
//	429                                      open
//	any other, and no answer                 unknown
type Answers struct {
	Field     string   // a field of the JSON answer, such as error or error.code; default: the last part of an RFC 9457 type
	ID        string   // the field of a success that names its effect, such as id or order.id; default: id
	OK        []string // it happened
	Duplicate []string // it had happened: the effect is that of an earlier request with this key
	Rejected  []string // it did not happen, and never will under this key; if listed with a value, every further refusal has the same value
	Open      []string // this attempt did nothing: the key is retried
	Unknown   []string // it may have happened: the key is retried
}

// defaultID is the default of Answers.ID.
const defaultID = "id"

// same reports whether a repetition says the same as the answer that decided its key: a success names the same
// effect, whatever its other fields and its status; a refusal has the same value. Successes without an id must be
// the same byte for byte: nothing else shows that there was one effect.
func (f *File) same(r traffic.Record, a traffic.Attempt, body []byte) bool {
	if a.Outcome != traffic.OK {
		return a.Problem == r.Problem()
	}
	name := cmp.Or(f.Answers.ID, defaultID)
	first, again := field(r.Body, name), field(body, name)
	if first == "" && again == "" {
		return bytes.Equal(r.Body, body)
	}
	return first == again
}

// stored returns the values of the listed refusals.
func (a Answers) stored() (values []string) {
	for _, entry := range a.Rejected {
		if _, value, found := strings.Cut(strings.TrimSpace(entry), " "); found {
			values = append(values, strings.TrimSpace(value))
		}
	}
	return values
}

// rules are the listed answers.
type rules map[string]traffic.Outcome

func (f *File) checkAnswers() error {
	f.rules = rules{}
	for _, list := range []struct {
		name    string
		entries []string
		outcome traffic.Outcome
	}{
		{"ok", f.Answers.OK, traffic.OK},
		{"duplicate", f.Answers.Duplicate, traffic.Duplicate},
		{"rejected", f.Answers.Rejected, traffic.Rejected},
		{"open", f.Answers.Open, traffic.Open},
		{"unknown", f.Answers.Unknown, traffic.Unknown},
	} {
		for i, entry := range list.entries {
			wrong := func(format string, args ...any) error {
				return f.at(place("answers", list.name, i), format, args...)
			}
			status, value, _ := strings.Cut(strings.TrimSpace(entry), " ")
			number, err := strconv.Atoi(status)
			if err != nil || number < 100 || number > 599 {
				return wrong("%q is not a status, or a status and a value: want 409 or 409 sold-out", entry)
			}
			rule := strings.TrimSpace(status + " " + strings.TrimSpace(value))
			if before, twice := f.rules[rule]; twice {
				return wrong("%s is %s above", rule, before)
			}
			f.rules[rule] = list.outcome
		}
	}
	return nil
}

// classify returns the outcome of an answer, and the value that names it in the report.
func (f *File) classify(status int, header http.Header, body []byte) (traffic.Outcome, string) {
	outcome, problem := traffic.ClassifyByStatus(status, header, body)
	value := problem
	if f.Answers.Field != "" {
		value = field(body, f.Answers.Field)
	}
	for _, rule := range []string{fmt.Sprintf("%d %s", status, value), strconv.Itoa(status)} {
		if listed, found := f.rules[rule]; found {
			return listed, value
		}
	}
	return outcome, value
}

// field returns the value at a path of a JSON body, such as "error.code"; "" if there is none.
func field(body []byte, path string) string {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return ""
	}
	for name := range strings.SplitSeq(path, ".") {
		object, is := value.(map[string]any)
		if !is {
			return ""
		}
		value = object[name]
	}
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}
