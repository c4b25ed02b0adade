// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"shop/locking/locktest"
)

// receiver keeps the spans that it gets by OTLP/HTTP.
type receiver struct {
	url   string
	mu    sync.Mutex
	spans []*tracepb.Span
	raw   strings.Builder
}

func startReceiver(t *testing.T) *receiver {
	r := &receiver{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var got collector.ExportTraceServiceRequest
		body, err := io.ReadAll(req.Body)
		if err == nil {
			err = proto.Unmarshal(body, &got)
		}
		if err != nil || req.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", req.URL, err)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.raw.Write(body)
		for _, of := range got.ResourceSpans {
			for _, scope := range of.ScopeSpans {
				r.spans = append(r.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// traces returns the spans of each trace, by its id in hexadecimal.
func (r *receiver) traces() map[string][]*tracepb.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string][]*tracepb.Span{}
	for _, s := range r.spans {
		id := fmt.Sprintf("%x", s.TraceId)
		all[id] = append(all[id], s)
	}
	return all
}

// rootOf returns the only span without a parent, nil if the trace is not complete.
func rootOf(spans []*tracepb.Span) (root *tracepb.Span) {
	ids := map[string]bool{}
	for _, s := range spans {
		ids[string(s.SpanId)] = true
		if len(s.ParentSpanId) == 0 {
			root = s
		}
	}
	for _, s := range spans {
		if s != root && !ids[string(s.ParentSpanId)] {
			return nil
		}
	}
	return root
}

func attributeOf(s *tracepb.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// spanNames are the names of the spans, each with its attributes that name a server.
func spanNames(spans []*tracepb.Span) []string {
	var list []string
	for _, s := range spans {
		list = append(list, s.Name, attributeOf(s, "db.system")+attributeOf(s, "db.system.name"))
	}
	return list
}

const clientsTrace = "4bf92f3577b34da6a3ce929d0e0e4736"

// tracedRequests are a request to each flow, and what its trace must contain.
var tracedRequests = []struct {
	root, key string
	send      func(r *replica, p transferReplica, w walletReplica) (int, string)
	want      []string
}{
	{
		"POST /v1/orders", "bought",
		func(r *replica, _ transferReplica, _ walletReplica) (int, string) { return r.buy("bought") },
		[]string{"lock wait", "lock hold", "redis", "evalsha", "postgresql", "batch start"},
	},
	{
		"POST /v1/transfers", "paid",
		func(_ *replica, p transferReplica, _ walletReplica) (int, string) { return p.pay("paid") },
		[]string{"lock wait", "lock hold", "etcdserverpb.KV/Txn", "postgresql", "batch start"},
	},
	{
		"POST /v1/wallets/{id}/credits", "credited",
		func(_ *replica, _ transferReplica, w walletReplica) (int, string) { return w.credit("credited") },
		[]string{"mongodb", "findAndModify", "commitTransaction", "HTTP POST"}, // the last one: the bonus service
	},
}

func TestTrace_EachRequestIsOneTraceOfAllServers(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20") // milliseconds between two exports
	otlp := startReceiver(t)
	sharedMongo(t)
	url, keys := newDatabase(t)
	r := startReplica(t, url, keys["alice"], "--lab", "--log-level=debug", "--otlp-endpoint", otlp.url)
	w := walletReplica{r, wallets(t, url)["alice"]}.open()
	p := transferReplica{r, accounts(t, url)["alice"], accounts(t, url)["bob"]}
	r.wantReady("ok", "ok") // a probe is not traced
	for _, request := range tracedRequests {
		if status, body := request.send(r, p, w); status != 201 {
			t.Fatalf("%s: %d %s", request.root, status, body)
		}
	}
	r.getWithTrace("00-" + clientsTrace + "-00f067aa0ba902b7-01")

	roots := map[string]*tracepb.Span{}
	complete := func() bool {
		for _, spans := range otlp.traces() {
			root := rootOf(spans)
			if root == nil {
				return false
			}
			roots[root.Name] = root
		}
		return len(roots) == len(tracedRequests)+1
	}
	locktest.Eventually(t, "complete traces", complete)
	traces := otlp.traces()
	if len(traces) != len(tracedRequests)+1 {
		t.Errorf("%d traces, want one for each request, and none of a probe: %v", len(traces), slices.Collect(maps.Keys(roots)))
	}
	for _, request := range tracedRequests {
		root := roots[request.root]
		if root == nil {
			t.Errorf("no trace is named %s", request.root)
			continue
		}
		id := fmt.Sprintf("%x", root.TraceId)
		got := spanNames(traces[id])
		for _, want := range request.want {
			if !slices.Contains(got, want) {
				t.Errorf("%s: no span %s in %v", request.root, want, got)
			}
		}
		if !strings.Contains(r.log.String(), fmt.Sprintf(`"trace_id":"%s","span_id":"%x"`, id, root.SpanId)) {
			t.Errorf("%s: its log line lacks its trace", request.root)
		}
		if slices.Contains(request.want, "lock hold") && !r.loggedLock("released", id) {
			t.Errorf("%s: the lines of its lock lack its trace", request.root)
		}
		if strings.Contains(otlp.raw.String(), request.key) {
			t.Errorf("the idempotency key %s is in a trace", request.key)
		}
	}
	if strings.Contains(otlp.raw.String(), keys["alice"]) {
		t.Error("an API key is in a trace")
	}
	read := roots["GET /v1/products"]
	if read == nil || fmt.Sprintf("%x", read.TraceId) == clientsTrace || len(read.Links) != 1 || fmt.Sprintf("%x", read.Links[0].TraceId) != clientsTrace {
		t.Errorf("the trace of a client must be linked, and not continued: %v", read)
	}
}

// loggedLock reports whether the log has one line for this event of a trace's lock.
func (r *replica) loggedLock(event, trace string) bool {
	var n int
	for text := range strings.Lines(r.log.String()) {
		var line map[string]any
		if json.Unmarshal([]byte(text), &line) == nil && line["msg"] == "lock" && line["event"] == event && line["trace_id"] == trace {
			n++
		}
	}
	return n == 1
}

// getWithTrace sends a request that is part of the client's own trace.
func (r *replica) getWithTrace(parent string) {
	req, err := http.NewRequest("GET", r.url+"/v1/products", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + r.key}, "Traceparent": {parent}}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 200 {
		r.t.Errorf("%s", res.Status)
	}
}

// This is why traces cost nothing without an endpoint: nothing of OpenTelemetry is in the path of a request.
func TestTrace_WithoutAnEndpointNothingIsInstalled(t *testing.T) {
	for _, endpoint := range []string{"", "http://127.0.0.1:1"} {
		on := endpoint != ""
		log := slog.New(slog.DiscardHandler)
		tr, err := traceFlags{Endpoint: endpoint}.open(t.Context(), log)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.close(log)
		mux, base := http.NewServeMux(), &http.Transport{}
		pg, err := pgxpool.ParseConfig("postgres://127.0.0.1:1/none")
		if err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer client.Close()
		var etcd clientv3.Config
		tr.postgres(pg)
		tr.etcd(&etcd)
		if err := tr.redis(client); err != nil {
			t.Fatal(err)
		}
		for what, installed := range map[string]bool{
			"handler": tr.handler(mux) != http.Handler(mux), "transport": tr.transport(base) != http.RoundTripper(base),
			"PostgreSQL": pg.ConnConfig.Tracer != nil, "etcd": len(etcd.DialOptions) > 0, "MongoDB": tr.mongo().Monitor != nil,
			"locks": tr.observer("redis") != nil, "log": tr.log(log) != log, "tracer": tr != nil,
		} {
			if installed != on {
				t.Errorf("endpoint %q, %s: installed %t", endpoint, what, installed)
			}
		}
	}
}

func TestTrace_ALineOfTheLogWithoutARequestHasNoIDs(t *testing.T) {
	out := &lines{}
	log := slog.New(traceHandler{logFlags{LogFormat: "json"}.logger(out).Handler()}).With("a", 1).WithGroup("g")
	log.Info("x", "b", 2)
	var got map[string]any
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || got["trace_id"] != nil || got["a"] != 1.0 {
		t.Errorf("%v %s", err, out)
	}
}
