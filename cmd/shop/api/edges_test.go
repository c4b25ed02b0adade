// SPDX-License-Identifier: MIT

package api_test

import (
	"net/http"
	"strings"
	"testing"

	"shop/cmd/shop/api"
	"shop/inventory"
)

func TestEdges_AQueryThatCannotBeReadIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *api.Config, _ *inventory.Config) { c.Lab = []string{"row", "naive"} })
	for _, query := range []string{"strategy=naive%zz", "strategy=naive;", "strategy=row&strategy=naive", "strategy=row&strategy=row", "%zz"} {
		s.do("POST", "/v1/orders?"+query, good, "Idempotency-Key: k").want(t, 400, api.TypeMalformed)
	}
	s.do("GET", "/v1/products?%zz", "").want(t, 400, api.TypeMalformed)
	s.wantOrders(0)
}

func TestEdges_OfHeaders(t *testing.T) {
	t.Parallel()
	s := open(t)
	for name, c := range map[string]struct {
		header http.Header
		status int
		typ    api.ProblemType
	}{
		"empty key":                {http.Header{"Idempotency-Key": {""}}, 400, api.TypeMissingIdempotencyKey},
		"key of white space":       {http.Header{"Idempotency-Key": {" \t"}}, 400, api.TypeMissingIdempotencyKey},
		"one key twice":            {http.Header{"Idempotency-Key": {"k", "k"}}, 400, api.TypeMalformed},
		"two content types":        {http.Header{"Content-Type": {"application/json", "text/plain"}}, 415, api.TypeUnsupportedMediaType},
		"one content type twice":   {http.Header{"Content-Type": {"application/json", "application/json"}}, 415, api.TypeUnsupportedMediaType},
		"two types in one":         {http.Header{"Content-Type": {"application/json, application/json"}}, 415, api.TypeUnsupportedMediaType},
		"an empty content type":    {http.Header{"Content-Type": {""}}, 415, api.TypeUnsupportedMediaType},
		"a quoted key of 255":      {http.Header{"Idempotency-Key": {`"` + strings.Repeat("k", 255) + `"`}}, 201, ""},
		"a key of 255 escapes":     {http.Header{"Idempotency-Key": {`"` + strings.Repeat(`\\`, 255) + `"`}}, 201, ""},
		"a key of 256 characters":  {http.Header{"Idempotency-Key": {strings.Repeat("k", 256)}}, 400, api.TypeMalformed},
		"a key of 256 in quotes":   {http.Header{"Idempotency-Key": {`"` + strings.Repeat("k", 256) + `"`}}, 400, api.TypeMalformed},
		"a quoted key with params": {http.Header{"Idempotency-Key": {`"k";a=1`}}, 400, api.TypeMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			req := must(http.NewRequest("POST", s.api+"/v1/orders", strings.NewReader(good)))(t)
			req.Header = http.Header{"Authorization": {"Bearer " + s.keys["alice"]}, "Content-Type": {"application/json"}, "Idempotency-Key": {"k"}}
			for k, v := range c.header {
				req.Header[k] = v
			}
			must(s.answerTo(req))(t).want(t, c.status, c.typ)
		})
	}
}
