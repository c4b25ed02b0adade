// SPDX-License-Identifier: MIT

package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"shop/cmd/shop/api"
)

// answer is a complete response.
type answer struct {
	status  int
	header  http.Header
	body    []byte
	problem api.Problem // if it is one
}

func (a answer) order(t *testing.T) api.Order {
	t.Helper()
	var o api.Order
	if err := json.Unmarshal(a.body, &o); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return o
}

func (a answer) want(t *testing.T, status int, typ api.ProblemType) answer {
	t.Helper()
	if a.status != status || a.problem.Type != typ {
		t.Fatalf("got %d %s, want %d %q", a.status, a.body, status, typ)
	}
	return a
}

// do sends a request as alice, and checks the answer against the spec. Each header is
// "Name: value"; "Name:" removes a header.
func (s *shop) do(method, path, body string, headers ...string) answer {
	s.t.Helper()
	a, err := s.try(s.t.Context(), method, path, body, headers...)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *shop) try(ctx context.Context, method, path, body string, headers ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.api+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+s.keys["alice"])
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		req.Header.Del(name)
		if value = strings.TrimSpace(value); value != "" {
			req.Header[http.CanonicalHeaderKey(name)] = []string{value}
		}
	}
	return s.answerTo(req)
}

// tryUntilDone retries a request while the answer is busy or in-progress, as a client must.
func (s *shop) tryUntilDone(method, path, body string, headers ...string) (a answer, err error) {
	for range 20 {
		a, err = s.try(s.t.Context(), method, path, body, headers...)
		if err != nil || a.problem.Type != api.TypeBusy && a.problem.Type != api.TypeInProgress {
			break
		}
	}
	return a, err
}

func (s *shop) answerTo(req *http.Request) (answer, error) {
	res, err := s.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: res.StatusCode, header: res.Header, body: data}
	if res.Header.Get("Content-Type") == "application/problem+json" && req.Method != http.MethodHead {
		if err := json.Unmarshal(data, &a.problem); err != nil || a.problem.Status != a.status {
			s.t.Errorf("not a problem: %s: %v", data, err)
		}
	}
	s.spec.check(s.t, req, a)
	return a, nil
}

func (s *shop) buy(key, sku string, quantity string, headers ...string) answer {
	s.t.Helper()
	return s.do("POST", "/v1/orders", `{"lines":[{"sku":"`+sku+`","quantity":`+quantity+`}]}`, append([]string{"Idempotency-Key: " + key}, headers...)...)
}

func (s *shop) as(name string) string { return "Authorization: Bearer " + s.keys[name] }

// specChecker checks answers against openapi.yaml.
type specChecker struct{ router routers.Router }

func newSpecChecker(t *testing.T) *specChecker {
	t.Helper()
	return &specChecker{router: must(specRouter())(t)}
}

// specRouter parses openapi.yaml once for all tests.
var specRouter = sync.OnceValues(func() (routers.Router, error) {
	spec, err := api.GetSpec()
	if err != nil {
		return nil, err
	}
	return gorillamux.NewRouter(spec)
})

func (c *specChecker) check(t *testing.T, req *http.Request, a answer) {
	t.Helper()
	for name, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s %s: %s is %q, want %q", req.Method, req.URL.Path, name, got, want)
		}
	}
	if a.header.Get("X-Request-Id") == "" {
		t.Errorf("%s %s: no request id", req.Method, req.URL.Path)
	}
	route, params, err := c.router.FindRoute(req)
	if err != nil { // the spec has no such route, so the server must not have it either
		if a.status != 404 && a.status != 405 && req.Method != http.MethodOptions {
			t.Errorf("%s %s is not in the spec, and was answered %d", req.Method, req.URL.Path, a.status)
		}
		return
	}
	for name, value := range params {
		params[name] = must(url.PathUnescape(value))(t)
	}
	input := &openapi3filter.RequestValidationInput{
		Request: req, Route: route, PathParams: params,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	}
	c.checkRequest(t, input, a)
	c.checkType(t, input, a)
	err = openapi3filter.ValidateResponse(req.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input,
		Status:                 a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
	if err != nil {
		t.Errorf("%s %s: %d %s\nis not what openapi.yaml says: %v", req.Method, req.URL.Path, a.status, a.body, err)
	}
}

// checkRequest checks that a request which took effect is valid. The spec is that of OpenAPI 3.1 here, while the server
// validates as in 3.0.
func (c *specChecker) checkRequest(t *testing.T, input *openapi3filter.RequestValidationInput, a answer) {
	t.Helper()
	if a.status >= 300 || input.Request.GetBody == nil {
		return
	}
	sent := input.Request.Clone(input.Request.Context())
	sent.Body = must(input.Request.GetBody())(t)
	sent.URL.RawQuery = strings.ReplaceAll(sent.URL.RawQuery, "+", "%2B") // ?strategy=redis+row
	valid := *input
	valid.Request = sent
	if err := openapi3filter.ValidateRequest(sent.Context(), &valid); err != nil {
		t.Errorf("%s %s was answered %d, but openapi.yaml forbids it: %v", sent.Method, sent.URL.Path, a.status, err)
	}
}

// checkType checks that the spec has an example of the problem's type, for this operation and status.
func (c *specChecker) checkType(t *testing.T, input *openapi3filter.RequestValidationInput, a answer) {
	t.Helper()
	if a.problem.Type == "" {
		return
	}
	if response := input.Route.Operation.Responses.Status(a.status); response != nil {
		for _, example := range response.Value.Content["application/problem+json"].Examples {
			if example.Value.Value.(map[string]any)["type"] == string(a.problem.Type) {
				return
			}
		}
	}
	t.Errorf("%s %s was answered %d %s, of which openapi.yaml has no example", input.Request.Method, input.Route.Path, a.status, a.problem.Type)
}
