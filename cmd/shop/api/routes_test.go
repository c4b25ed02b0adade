// SPDX-License-Identifier: MIT

package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"shop/cmd/shop/api"
)

func TestRefusals_OfRoutesAndMethods(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := s.buy("k", "coffee", "1").order(t).ID.String()
	for _, c := range []struct {
		method, path, body string
		status             int
		typ                api.ProblemType
	}{
		{"GET", "/", "", 404, api.TypeNotFound},
		{"GET", "/v1", "", 404, api.TypeNotFound},
		{"GET", "/v1/orders/" + id + "/", "", 404, api.TypeNotFound},
		{"GET", "/metrics", "", 404, api.TypeNotFound},
		{"GET", "/debug/pprof/", "", 404, api.TypeNotFound},
		{"GET", "/v1/orders", "", 405, api.TypeMethodNotAllowed},
		{"PUT", "/v1/orders", good, 405, api.TypeMethodNotAllowed},
		{"DELETE", "/v1/orders/" + id, "", 405, api.TypeMethodNotAllowed},
		{"GET", "/v1/orders/" + id + "/cancel", "", 405, api.TypeMethodNotAllowed},
		{"POST", "/v1/products", "{}", 405, api.TypeMethodNotAllowed},
		{"BREW", "/v1/products", "", 405, api.TypeMethodNotAllowed},
		{"GET", "/v1/orders/1", "", 400, api.TypeMalformed},
		{"GET", "/v1/orders/" + id + "%2Fcancel", "", 400, api.TypeMalformed},
		{"GET", "/v1/products/caf%C3%A9", "", 400, api.TypeMalformed},
		{"GET", "/v1/products/a%2Fb", "", 400, api.TypeMalformed},
		{"GET", "/v1/products/a%00", "", 400, api.TypeMalformed},
		{"GET", "/v1/products?limit=1", "", 400, api.TypeMalformed},
		{"GET", "/v1/products", "{}", 400, api.TypeMalformed},
		{"POST", "/v1/orders/" + id + "/cancel", "{}", 400, api.TypeMalformed},
		{"POST", "/v1/orders?strategy=naive", good, 400, api.TypeMalformed},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			a := s.do(c.method, c.path, c.body, "Idempotency-Key: k2").want(t, c.status, c.typ)
			if c.status == 405 && a.header.Get("Allow") == "" {
				t.Error("405 without Allow")
			}
		})
	}
}

// The problem for a malformed id names the parameter.
func TestRefusals_NameTheMalformedID(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := "00000000-0000-0000-0000-000000000000"
	for _, bad := range []string{"xyz", id[1:], id + "0", strings.ReplaceAll(id, "-", ""), "urn:uuid:" + id, "%7B" + id + "%7D", id[:35] + "g", id + "%0A"} {
		for _, a := range []answer{
			s.do("GET", "/v1/orders/"+bad, ""),
			s.do("POST", "/v1/orders/"+bad+"/cancel", "", "Idempotency-Key: k"),
		} {
			if d := a.want(t, 400, api.TypeMalformed).problem.Detail; !strings.HasPrefix(d, "The parameter id: ") {
				t.Errorf("%s: %s", bad, d)
			}
		}
	}
}

func TestMethods_HeadAndOptions(t *testing.T) {
	t.Parallel()
	s := open(t)
	head := s.do("HEAD", "/v1/products", "")
	if head.status != 405 || len(head.body) != 0 || head.header.Get("Allow") == "" {
		t.Errorf("HEAD: %d %q Allow %q", head.status, head.body, head.header.Get("Allow"))
	}
	options := s.do("OPTIONS", "/v1/orders", "", "Authorization:")
	if options.status != 204 || !strings.Contains(options.header.Get("Allow"), "POST") || len(options.body) != 0 {
		t.Errorf("OPTIONS: %d %q Allow %q", options.status, options.body, options.header.Get("Allow"))
	}
	if options.header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("pages of other sites may call")
	}
}

func TestRefusals_TwoIdempotencyKeysAreMalformed(t *testing.T) {
	t.Parallel()
	s := open(t)
	req := must(http.NewRequest("POST", s.api+"/v1/orders", strings.NewReader(good)))(t)
	req.Header = http.Header{
		"Authorization": {"Bearer " + s.keys["alice"]}, "Content-Type": {"application/json"}, "Idempotency-Key": {"a", "b"},
	}
	res := must(s.http.Do(req))(t)
	defer res.Body.Close()
	var p api.Problem
	if err := json.NewDecoder(res.Body).Decode(&p); err != nil || p.Type != api.TypeMalformed || p.Detail == "" {
		t.Errorf("%d %+v %v", res.StatusCode, p, err)
	}
}

// A body of unknown length reaches the limit while it is read.
func TestRefusals_TooLargeWithoutALength(t *testing.T) {
	t.Parallel()
	s := open(t)
	body := struct{ io.Reader }{strings.NewReader(`{"lines":[` + strings.Repeat(" ", 64<<10) + `]}`)}
	req := must(http.NewRequest("POST", s.api+"/v1/orders", body))(t)
	req.Header = http.Header{
		"Authorization": {"Bearer " + s.keys["alice"]}, "Content-Type": {"application/json"}, "Idempotency-Key": {"a"},
	}
	res := must(s.http.Do(req))(t)
	defer res.Body.Close()
	if res.StatusCode != 413 {
		t.Errorf("%s", res.Status)
	}
}
