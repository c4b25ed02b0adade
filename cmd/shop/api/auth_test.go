// SPDX-License-Identifier: MIT

package api_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"shop/cmd/shop/api"
	"shop/locking/idempotency/pgtx/pgtest"
)

func TestAuth_WithoutAValidKeyNothingIsDisclosed(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := s.buy("k", "coffee", "1").order(t).ID.String()
	key := s.keys["alice"]
	var first []byte
	for _, header := range []string{
		"Authorization:", "Authorization: Bearer", "Authorization: " + key, "Authorization: Bearer " + key + "x",
		"Authorization: Bearer " + key[:len(key)-1], "Authorization: Basic " + key, "Authorization: Bearer nonsense", "Authorization: Bearer shop_" + strings.Repeat("x", 43),
		"Authorization: Bearer " + strings.ToUpper(key), "Authorization: Bearer " + key + " " + key,
		"Authorization: Bearer " + strings.Repeat("x", 4000), "Authorization: Bearer ' OR 1=1 --",
	} {
		for _, path := range []string{"GET /v1/products", "GET /v1/orders/" + id, "POST /v1/orders/" + id + "/cancel", "GET /v1/audit"} {
			method, path, _ := strings.Cut(path, " ")
			a := s.do(method, path, "", header, "Idempotency-Key: k2").want(t, 401, api.TypeUnauthorized)
			if a.header.Get("WWW-Authenticate") == "" {
				t.Error("401 without WWW-Authenticate")
			}
			if first == nil {
				first = a.body
			}
			if string(a.body) != string(first) {
				t.Errorf("%s tells more: %s", header, a.body)
			}
		}
	}
}

func TestAuth_SchemeInAnyCase(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, scheme := range []string{"bearer ", "BEARER ", "Bearer   "} {
		s.do("GET", "/v1/products", "", "Authorization: "+scheme+s.keys["alice"]).want(t, 200, "")
	}
}

func TestAuth_TwoAuthorizationHeadersAreUnauthorized(t *testing.T) {
	t.Parallel()
	s := open(t)
	req := must(http.NewRequest("GET", s.api+"/v1/products", nil))(t)
	req.Header["Authorization"] = []string{"Bearer " + s.keys["alice"], "Bearer " + s.keys["bob"]}
	res := must(s.http.Do(req))(t)
	res.Body.Close()
	if res.StatusCode != 401 {
		t.Errorf("%s", res.Status)
	}
}

func TestAuth_OnlyAnAdministratorAudits(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.do("GET", "/v1/audit", "").want(t, 403, api.TypeForbidden)
	if a := s.do("GET", "/v1/audit", "", s.as("admin")).want(t, 200, ""); !strings.Contains(string(a.body), `"S1":0`) {
		t.Errorf("%s", a.body)
	}
}

// As needs no key, whatever key the request has, and opens nothing that needs an administrator's.
func TestAuth_AsIsOneClientAndNoAdministrator(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := s.buy("k", "coffee", "1").order(t).ID.String()
	get := func(client, path, key string) int {
		r := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+s.keys[key])
		}
		w := httptest.NewRecorder()
		s.server.As(s.ids[client]).ServeHTTP(w, r)
		return w.Code
	}
	for _, c := range []struct {
		client, path, key string
		want              int
	}{
		{"alice", "/v1/orders/" + id, "", 200},
		{"alice", "/v1/orders/" + id, "bob", 200},
		{"bob", "/v1/orders/" + id, "", 404},
		{"bob", "/v1/orders/" + id, "alice", 404},
		{"admin", "/v1/audit", "", 401},
		{"nobody", "/v1/products", "", 401},
	} {
		if got := get(c.client, c.path, c.key); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestAuth_ProbesNeedNoKey(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.do("GET", "/livez", "", "Authorization:").want(t, 200, "")
	s.do("GET", "/readyz", "", "Authorization:").want(t, 200, "")
}

func TestClients_KeysAreNotInTheTable(t *testing.T) {
	t.Parallel()
	s := open(t)
	rows := must(s.pool.Query(t.Context(), `SELECT c::text FROM clients c`))(t)
	defer rows.Close()
	for rows.Next() {
		var row string
		if err := rows.Scan(&row); err != nil {
			t.Fatal(err)
		}
		for name, key := range s.keys {
			if strings.Contains(row, strings.TrimPrefix(key, "shop_")) {
				t.Errorf("the key of %s is in %s", name, row)
			}
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

func TestClients_NamesAreUniqueAndKeysRotate(t *testing.T) {
	t.Parallel()
	s := open(t)
	ctx := t.Context()
	if _, _, err := api.AddClient(ctx, s.pool, "alice", false); !errors.Is(err, api.ErrClientExists) {
		t.Errorf("a second alice: %v", err)
	}
	if _, err := api.RotateKey(ctx, s.pool, "absent"); !errors.Is(err, api.ErrNoClient) {
		t.Errorf("a key for an unknown client: %v", err)
	}
	key := must(api.RotateKey(ctx, s.pool, "alice"))(t)
	s.do("GET", "/v1/products", "").want(t, 401, api.TypeUnauthorized) // never seen, so never cached
	s.do("GET", "/v1/products", "", "Authorization: Bearer "+key).want(t, 200, "")
	clients := must(api.Clients(ctx, s.pool))(t)
	if len(clients) != 3 || clients[0].Name != "admin" || !clients[0].Admin || clients[1].Admin || clients[1].ID != s.ids["alice"] {
		t.Errorf("%+v", clients)
	}
}

// Names that look alike, or break a list, are not two clients.
func TestClients_ANameHasOneSpelling(t *testing.T) {
	t.Parallel()
	s := open(t)
	ctx := t.Context()
	for _, name := range []string{"", " ", " alice", "alice ", "a  b", "a\nb", "a\u200bb", "a\x00b", "a\xffb", strings.Repeat("x", 65)} {
		if _, _, err := api.AddClient(ctx, s.pool, name, false); !errors.Is(err, api.ErrClientName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	composed, decomposed := "Zo\u00eb van Dijk", "Zoe\u0308 van Dijk"
	if _, _, err := api.AddClient(ctx, s.pool, decomposed, false); err != nil {
		t.Error(err)
	}
	if _, _, err := api.AddClient(ctx, s.pool, composed, false); !errors.Is(err, api.ErrClientExists) {
		t.Errorf("its other spelling: %v", err)
	}
	for _, name := range []string{composed, decomposed} {
		if _, err := api.RotateKey(ctx, s.pool, name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// The table may have a name from before names were checked.
func TestClients_AnOldNameKeepsItsKeyInRotation(t *testing.T) {
	t.Parallel()
	s := open(t)
	ctx := t.Context()
	if _, err := s.pool.Exec(ctx, `UPDATE clients SET name = 'alice ' WHERE name = 'bob'`); err != nil {
		t.Fatal(err)
	}
	key := must(api.RotateKey(ctx, s.pool, "alice "))(t)
	s.do("GET", "/v1/products", "", "Authorization: Bearer "+key).want(t, 200, "")
	s.do("GET", "/v1/products", "").want(t, 200, "") // alice's own
}

func TestMigrate_CanBeRepeatedAndRaced(t *testing.T) {
	t.Parallel()
	url := pgtest.Schema(t)
	for range 2 {
		done := make(chan error)
		for range 3 {
			go func() { done <- api.Migrate(t.Context(), url) }()
		}
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}
