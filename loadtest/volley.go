package loadtest

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// volley is one plan, fired at some replicas until every key is decided.
type volley struct {
	bases    []string
	headers  Headers
	history  *History
	recorder *Recorder
	client   *http.Client
	chaser   *Chaser
	chasing  context.Context // ends with the chaser's patience
	end      context.CancelFunc
	follow   func(Record) []Shot // what an answer gives rise to; may be nil
}

// maxConns to each replica: more than are ever needed at once, so that nobody
// waits for one; bounded, so that a stalled replica does not eat all ports.
const (
	maxConns      = 64
	clientTimeout = 10 * time.Second
	patience      = 20 * time.Second // of the chaser, after the last shot
)

func newVolley(ctx context.Context, bases []string, headers Headers, chaseFor time.Duration,
	classify func(int, http.Header, []byte) (Outcome, string),
) (*volley, error) {
	numbers := map[string]int{}
	for n, base := range bases {
		u, err := url.Parse(base)
		if err != nil {
			return nil, errors.New("not the URL of a service (not shown, since it may hold a password): want http://127.0.0.1:8080")
		}
		numbers[u.Host] = n
	}
	v := &volley{bases: bases, headers: headers, history: NewHistory()}
	v.chasing, v.end = context.WithTimeout(ctx, chaseFor)
	v.recorder = &Recorder{History: v.history, Header: headers.Key, Replicas: numbers, Classify: classify}
	v.client = v.recorder.Client(maxConns, clientTimeout)
	v.chaser = NewChaser(v.client, bases, headers, v.history)
	v.recorder.Undecided = func(r *Record) { v.chaser.Chase(v.chasing, r) }
	v.recorder.Decided = func(r Record) {
		if v.follow != nil {
			v.chaser.Follow(v.chasing, v.follow(r))
		}
	}
	return v, nil
}

// fire sends the shots, and returns when every key is decided or patience ends.
func (v *volley) fire(ctx context.Context, shots []Shot) vegeta.Metrics {
	for i, shot := range shots {
		if i == 0 || shots[i-1].Intent != shot.Intent { // a twin is known already
			v.history.Intend(*shot.Intent)
		}
	}
	metrics := Attack(ctx, v.client, v.bases, v.headers, shots)
	v.chaser.Wait()
	return metrics
}

func (v *volley) close() {
	v.end()
	v.chaser.Wait()
	v.client.CloseIdleConnections()
}
