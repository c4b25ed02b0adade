// SPDX-License-Identifier: MIT

package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/locking/locktest"
)

// dribble is a purchase by alice that has sent only the first byte of its body.
type dribble struct {
	t    *testing.T
	conn net.Conn
	rest string
}

func (s *shop) dribble(key string) *dribble {
	s.t.Helper()
	d := &dribble{t: s.t, conn: must(net.Dial("tcp", strings.TrimPrefix(s.api, "http://")))(s.t), rest: good[1:]}
	s.t.Cleanup(func() { d.conn.Close() })
	d.send(fmt.Sprintf("POST /v1/orders HTTP/1.1\r\nHost: shop\r\n%s\r\nContent-Type: application/json\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s",
		s.as("alice"), key, len(good), good[:1]))
	return d
}

func (d *dribble) send(text string) {
	d.t.Helper()
	if _, err := io.WriteString(d.conn, text); err != nil {
		d.t.Fatal(err)
	}
}

// answer waits at most ten seconds for the server's reply.
func (d *dribble) answer() answer {
	d.t.Helper()
	if err := d.conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		d.t.Fatal(err)
	}
	res := must(http.ReadResponse(bufio.NewReader(d.conn), nil))(d.t)
	defer res.Body.Close()
	a := answer{status: res.StatusCode, header: res.Header, body: must(io.ReadAll(res.Body))(d.t)}
	if res.Close { // ReadResponse sets it from the header
		a.header.Set("Connection", "close")
	}
	_ = json.Unmarshal(a.body, &a.problem)
	return a
}

// refused counts the refusals of a limit.
func (s *shop) refused(limit string) (n float64) {
	s.t.Helper()
	for _, f := range must(s.metrics.Gather())(s.t) {
		for _, m := range f.GetMetric() {
			if f.GetName() == "http_requests_refused_total" && m.GetLabel()[0].GetValue() == limit {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// heldOrders hold purchases until they are released, before anything is done.
type heldOrders struct {
	api.Buyer
	in    chan struct{}
	out   chan struct{}
	letGo func()
}

// holdOrders returns the same shop with held purchases.
func (s *shop) holdOrders(inFlight int) (*shop, heldOrders) {
	orders := heldOrders{Buyer: s.service, in: make(chan struct{}, 100), out: make(chan struct{})}
	orders.letGo = sync.OnceFunc(func() { close(orders.out) })
	holding := s.besideWith(func(c *api.Config) {
		c.Orders, c.Limits.InFlight, c.Limits.Request = selling(orders), inFlight, time.Minute
	})
	s.t.Cleanup(orders.letGo)
	return holding, orders
}

func (h heldOrders) Buy(ctx context.Context, req inventory.Request, lines []inventory.Line) (inventory.Reply, error) {
	h.in <- struct{}{}
	<-h.out
	return h.Buyer.Buy(ctx, req, lines)
}

func TestAdmission_SlowBodiesAreNotInFlight(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *api.Config, _ *inventory.Config) { c.Limits.InFlight, c.Limits.Share = 2, 3 })
	var slow []*dribble
	for n := range 3 {
		slow = append(slow, s.dribble(fmt.Sprintf("k%d", n)))
	}
	locktest.Eventually(t, "all are read", func() bool { return s.server.Reading() == 3 })
	s.do("GET", "/v1/products", "", s.as("bob")).want(t, 200, "")
	s.buy("k", "coffee", "1", s.as("bob")).want(t, 201, "")
	s.buy("k", "coffee", "1").want(t, 429, api.TypeRateLimited) // they fill alice's share
	slow[0].send(slow[0].rest)
	slow[0].answer().want(t, 201, "")
	s.buy("k", "coffee", "1").want(t, 201, "")
}

func TestAdmission_ABodyThatIsNotThereInTimeIsA408AndNothingWasDone(t *testing.T) {
	locktest.Slow(t, "real time-outs")
	t.Parallel()
	s := open(t, func(c *api.Config, _ *inventory.Config) { c.Limits.Request = 2 * time.Second }) // enough time to look up the key
	a := s.dribble("k").answer().want(t, 408, api.TypeRequestTimeout)
	if a.header.Get("Connection") != "close" || !strings.Contains(a.problem.Detail, "Nothing was done.") {
		t.Errorf("%v %s", a.header, a.body)
	}
	if n := s.refused("body_time"); n != 1 {
		t.Errorf("%v counted", n)
	}
	s.wantOrders(0)
}

func TestAdmission_ACloseEndsTheReadingOfBodiesAndLetsTheWorkGoOn(t *testing.T) {
	locktest.Slow(t, "real time-outs")
	t.Parallel()
	s, orders := open(t).holdOrders(100)
	var worked answer
	var wg sync.WaitGroup
	wg.Go(func() { worked = s.buy("k1", "coffee", "1") })
	<-orders.in
	before := s.dribble("k2")
	locktest.Eventually(t, "it is read", func() bool { return s.server.Reading() == 1 })
	s.server.Close()
	last := s.dribble("k3") // authenticated last
	last.send(last.rest)
	<-orders.in
	after := s.dribble("k4")
	before.answer().want(t, 503, api.TypeBusy)
	after.answer().want(t, 503, api.TypeBusy)
	orders.letGo()
	wg.Wait()
	worked.want(t, 201, "")
	last.answer().want(t, 201, "") // the limit for its body does not apply to its work
}

// A refusal before the body is read does not wait for the whole body.
func TestAdmission_ARefusalDoesNotWaitForItsBody(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.keys["alice"] += "x"
	s.dribble("k").answer().want(t, 401, api.TypeUnauthorized)
}

func TestAdmission_OneClientHasItsShareOfTheRequestsInFlight(t *testing.T) {
	t.Parallel()
	const all = 8
	s, orders := open(t).holdOrders(all) // a share of 2
	answers := make(chan answer, all)
	for n := range all {
		go func() { answers <- s.buy(fmt.Sprintf("k%d", n), "coffee", "1") }()
	}
	locktest.Eventually(t, "each is at work or refused", func() bool { return len(orders.in)+len(answers) == all })
	if len(orders.in) != 2 {
		t.Errorf("%d of alice's requests are at work, want 2", len(orders.in))
	}
	s.do("GET", "/v1/products", "", s.as("bob")).want(t, 200, "")
	for range len(answers) {
		if a := (<-answers).want(t, 429, api.TypeRateLimited); a.header.Get("Retry-After") == "" {
			t.Error("429 without Retry-After")
		}
	}
	if n := s.refused("client_share"); n != all-2 {
		t.Errorf("%v counted", n)
	}
	orders.letGo()
	for range 2 {
		(<-answers).want(t, 201, "")
	}
	s.buy("k9", "coffee", "1").want(t, 201, "") // the share is free again
}

// A proxy may use the length and take the rest for the body; net/http uses the chunks.
func TestAdmission_NothingFollowsABodyOfTwoLengths(t *testing.T) {
	t.Parallel()
	s := open(t)
	d := &dribble{t: t, conn: must(net.Dial("tcp", strings.TrimPrefix(s.api, "http://")))(t)}
	defer d.conn.Close()
	request := func(key, length, body string) string {
		return fmt.Sprintf("POST /v1/orders HTTP/1.1\r\nHost: shop\r\n%s\r\nContent-Type: application/json\r\nIdempotency-Key: %s\r\n%s\r\n\r\n%s", s.as("alice"), key, length, body)
	}
	hidden := request("k2", fmt.Sprintf("Content-Length: %d", len(good)), good)
	chunks := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(good), good)
	d.send(request("k1", fmt.Sprintf("Transfer-Encoding: chunked\r\nContent-Length: %d", len(chunks)+len(hidden)), chunks+hidden))
	if err := d.conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	text := string(must(io.ReadAll(d.conn))(t)) // to its end: the connection is closed
	if n := strings.Count(text, "HTTP/1.1 "); n != 1 || !strings.HasPrefix(text, "HTTP/1.1 201") || !strings.Contains(text, "Connection: close") {
		t.Errorf("%d answers: %s", n, text)
	}
	s.wantOrders(1)
}
