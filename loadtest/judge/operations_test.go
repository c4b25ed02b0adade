// SPDX-License-Identifier: MIT

package judge

import (
	"reflect"
	"testing"
	"time"

	"shop/loadtest/linear"
	"shop/loadtest/traffic"
)

// attempts of a key, at 10 to 20, 30 to 40 and so on.
func attempts(outcomes ...traffic.Outcome) (list []traffic.Attempt) {
	for i, o := range outcomes {
		start := time.Duration(20*i + 10)
		list = append(list, traffic.Attempt{Replica: i, Start: start, End: start + 10, Outcome: o, Status: 200 + i, Problem: string(o)})
	}
	return list
}

func TestWritten_AnOperationLastsFromWhatMayHaveDoneItToTheFirstAnswer(t *testing.T) {
	for _, c := range []struct {
		name      string
		outcome   traffic.Outcome
		attempts  []traffic.Attempt
		call, end int64
	}{
		{"at once", traffic.OK, attempts(traffic.OK), 10, 20},
		{"busy first", traffic.OK, attempts(traffic.Open, traffic.OK), 30, 40},
		{"unknown first", traffic.OK, attempts(traffic.Unknown, traffic.Open, traffic.OK), 10, 60},
		{"answered twice", traffic.OK, attempts(traffic.OK, traffic.OK), 10, 20},
		{"bought and refused", traffic.OK, attempts(traffic.Rejected, traffic.OK), 10, 40},
		{"undecided", traffic.Unknown, attempts(traffic.Open, traffic.Unknown, traffic.Open), 30, 0},
		{"given up", traffic.Open, attempts(traffic.Open, traffic.Open), 10, 40},
		{"never sent", traffic.Open, nil, 0, 0},
	} {
		o := operationOf(traffic.Record{Intent: traffic.Intent{Key: "a"}, Outcome: c.outcome, Attempts: c.attempts})
		if o.Call != c.call || o.Return != c.end || o.Outcome != string(c.outcome) || len(o.Attempts) != len(c.attempts) {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
}

func TestWritten_EachAnswerToAReadIsAnOperation(t *testing.T) {
	h := traffic.NewHistory()
	h.Intend(traffic.Intent{Key: "r", Reads: true, Method: "GET", Path: "/x"})
	for i, a := range attempts(traffic.OK, traffic.Unknown, traffic.OK) {
		a.Key = "r"
		h.Add(a, []byte{'1' + byte(i)})
	}
	got := Written(linear.Header{}, h.Records()).Operations
	var answers []string
	for _, o := range got {
		if !o.Reads || len(o.Attempts) != 1 || o.Call != o.Attempts[0].Start {
			t.Errorf("%+v", o)
		}
		answers = append(answers, string(o.Answer))
	}
	if !reflect.DeepEqual(answers, []string{"1", "", "3"}) || got[1].Return != 0 || got[1].Fate() != linear.Nothing || got[2].Return != 60 {
		t.Errorf("%q: %+v", answers, got)
	}
}

func TestEffects_AreThoseOfTheRequestThatHadTheKey(t *testing.T) {
	clients := [][16]byte{{1}, {2}}
	record := func(client int, name, key string, outcome traffic.Outcome) traffic.Record {
		return traffic.Record{Intent: traffic.Intent{Client: client, Key: name, SharedKey: key}, Outcome: outcome}
	}
	records := []traffic.Record{
		record(0, "a", "", traffic.Unknown),             // done
		record(1, "b", "a", traffic.Unknown),            // the key of another client: not done
		record(0, "c", "", traffic.OK),                  // done, as answered
		record(0, "d", "c", traffic.Rejected),           // refused because of c
		record(0, "e", "", traffic.Unknown),             // of two with one key,
		record(0, "f", "e", traffic.Open),               // one was done
		record(0, "g", "", traffic.Open),                // not done
		record(0, "h", "", traffic.Open),                // done, against its answer
		{Intent: traffic.Intent{Key: "i", Reads: true}}, // a read has no effect
	}
	stored := []Stored{
		{clients[0], "a", []byte(`{"id":1}`), 7},
		{clients[0], "c", []byte(`{"id":2}`), 8},
		{clients[0], "e", nil, 9},
		{clients[0], "h", nil, 10},
	}
	h := WithEffects(linear.Header{Audited: true}, records, stored, clients)
	want := []struct {
		effect linear.Effect
		stored string
		order  int64
	}{{linear.Yes, `{"id":1}`, 7}, {linear.No, "", 0}, {"", "", 8}, {linear.No, "", 0}, {"", "", 0}, {"", "", 0}, {linear.No, "", 0}, {linear.Yes, "", 10}}
	for i, w := range want {
		if o := h.Operations[i]; o.Effect != w.effect || string(o.Stored) != w.stored || o.Order != w.order {
			t.Errorf("%s: %q %s %d, want %+v", o.Key, o.Effect, o.Stored, o.Order, w)
		}
	}
	if len(h.Operations) != len(want) {
		t.Errorf("%d operations, want %d", len(h.Operations), len(want))
	}
}
