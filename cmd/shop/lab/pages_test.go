// SPDX-License-Identifier: MIT

package lab

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"shop/inventory"
)

// tab opens another tab of the same browser.
func (b browser) tab() browser {
	b.Helper()
	ctx, closeTab := chromedp.NewContext(b.ctx)
	b.Cleanup(closeTab)
	return browser{b.T, ctx}
}

// await waits until a JavaScript expression is true.
func (b browser) await(what, expression string) {
	b.Helper()
	for !eval[bool](b, expression) {
		select {
		case <-b.ctx.Done():
			b.Fatalf("%s: %v\n%s", what, b.ctx.Err(), expression)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// wantOnPhone checks that the page fits on a phone, and that dark mode is dark.
func (b browser) wantOnPhone() {
	b.Helper()
	b.do(chromedp.EmulateViewport(360, 740))
	if width := eval[int](b, `document.documentElement.scrollWidth`); width > 360 {
		b.Errorf("%d pixels wide on a phone of 360", width)
	}
	const background = `getComputedStyle(document.body).backgroundColor`
	b.prefer("light")
	light := eval[string](b, background)
	b.prefer("dark")
	if dark := eval[string](b, background); dark == light {
		b.Errorf("light and dark are both %s", dark)
	}
}

// contains is an expression that is true if an element has a text.
func contains(selector, text string) string {
	return fmt.Sprintf(`!!document.querySelector(%q)?.innerText.includes(%q)`, selector, text)
}

func TestShopPage_WhatIsBoughtInOneWindowAppearsInTheOther(t *testing.T) {
	t.Parallel()
	s, alice := serveShop(t), openBrowser(t)
	if _, err := s.orders.AddProduct(t.Context(), inventory.Product{SKU: "vinyl", Name: "Signed record", Price: 2900, Currency: "EUR", Stock: 20, ClientMax: new(int64(2))}); err != nil {
		t.Fatal(err)
	}
	alice.do(chromedp.Navigate(s.url + "/lab/shop#alice"))
	bob := alice.tab()
	bob.do(chromedp.Navigate(s.url + "/lab/shop#bob"))
	for _, b := range []browser{alice, bob} {
		b.await("the first state", contains("#products", "Coffee")+" && "+contains("#products", "at most 2 each"))
	}
	alice.do(chromedp.SendKeys(`#buy input[name="quantity"]`, "\r")) // by keyboard
	alice.await("the answer", contains("#requests .ok", "201 Order"))
	bob.await("the order of the other window", contains("#orders li.new", "alice: 1 × coffee, 8.90 EUR, confirmed"))
	bob.do(chromedp.Click(`#wallet button[value="pay"]`))
	alice.await("the payment of the other window", contains("#entries", "alice: +5.00 EUR"))
	bob.do(chromedp.Click(`#transfer button`))
	alice.await("the transfer of the other window", contains("#ledger", "alice: +10.00 EUR"))

	alice.do(chromedp.Click("#requests button"))
	alice.await("the replay", contains("#requests li:first-child", "the same bytes; nothing happened again"))

	// The answer is lost after the order was made.
	eval[bool](alice, `(() => { const real = window.fetch; window.fetch = async (...a) => { await real(...a); window.fetch = real; throw new TypeError("cut"); }; return true; })()`)
	alice.do(chromedp.Click("#buy button"))
	alice.await("the unknown outcome", contains("#requests li:first-child .unknown", "It may have happened, or not"))
	alice.await("its button", contains("#requests li:first-child button", "Ask again with the same key"))
	alice.do(chromedp.Click("#requests li:first-child button"))
	alice.await("the outcome", contains("#requests li:first-child .ok", "Replayed: Order"))
	bob.await("both orders", `document.querySelectorAll("#orders li").length === 2`)

	// Give it back. The page may replace the list between chromedp's search for a node and its click.
	eval[bool](alice, `(() => { document.querySelector("#orders button").click(); return true; })()`)
	bob.await("the cancellation", contains("#orders", "cancelled")+" && "+contains("#products", "99"))
	s.breaks(Outage{"etcd", "does not reply: …"})
	bob.await("the outage", contains("#down", "etcd does not reply"))
	alice.wantOnPhone()
	if orders, err := s.orders.Products(t.Context()); err != nil || orders[0].Stock != 99 {
		t.Errorf("%v %v, want one coffee sold", orders, err)
	}
}

func TestPatternsPage_AVisitorMeasuresThem(t *testing.T) {
	t.Parallel()
	s, b := servePatterns(t), openBrowser(t)
	b.do(chromedp.Navigate(s.url+"/lab/patterns"), chromedp.WaitReady("[data-measure=redis] button"), chromedp.Click("[data-measure=redis] button"))
	b.await("a figure", `/^[\d,.]+ µs, [\d,.]+ per second$/.test(document.querySelector("[data-measure=redis] output").innerText)`)
	b.do(chromedp.Click("#all"))
	b.await("all figures", contains("#status", fmt.Sprintf("Measured %d patterns.", len(measurements))))
	for _, m := range measurements {
		if out := eval[string](b, fmt.Sprintf(`document.querySelector("[data-measure=%s] output").innerText`, m.Name)); !strings.Contains(out, " µs, ") || strings.HasPrefix(out, "0 ") {
			t.Errorf("%s: %s", m.Name, out)
		}
	}
	if rows := eval[int](b, `document.querySelectorAll("#figures tbody tr").length`); rows != len(measurements) { // redis twice
		b.Errorf("%d rows at the top, want %d", rows, len(measurements))
	}
	if !s.lab.reserve() {
		t.Fatal("a measurement is still running")
	}
	b.do(chromedp.Click("[data-measure=redis] button"))
	b.await("the refusal", contains("[data-measure=redis] output.error", "is running"))
	s.lab.release()
	s.lab.work.Done()
	b.wantOnPhone()
}

// do sends a request on a connection of its own.
func (s *served) do(req *http.Request) (*http.Response, string) {
	s.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res, string(answer)
}

// text returns a page.
func (s *served) text(path string) string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), "GET", s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	res, text := s.do(req)
	if policy := res.Header.Get("Content-Security-Policy"); res.StatusCode != http.StatusOK || !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		s.t.Fatal(res.Status, policy, text)
	}
	return text
}

// The names of hosts have no case, and may end with a dot.
func TestLab_EachSpellingOfThisMachineIsServed(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for host, want := range map[string]int{"LOCALHOST": 200, "localhost.": 200, "LocalHost:80": 200, "[::1]": 200, "localhost.example.com": 403, "notlocalhost": 403, ".localhost": 403} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/lab/shop", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		if res, _ := s.do(req); res.StatusCode != want {
			t.Errorf("%s: %s, want %d", host, res.Status, want)
		}
	}
}

// wantOwnOrigin checks that a page of another site cannot send this request.
func (s *served) wantOwnOrigin(path, body string) {
	s.t.Helper()
	for name, foreign := range map[string]func(*http.Request){
		"another site":        func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"another origin":      func(r *http.Request) { r.Header.Set("Origin", "http://example.com") },
		"another site's name": func(r *http.Request) { r.Host = "example.com" }, // that leads to 127.0.0.1
	} {
		req, err := http.NewRequestWithContext(s.t.Context(), "POST", s.url+path, strings.NewReader(body))
		if err != nil {
			s.t.Fatal(err)
		}
		foreign(req)
		if res, answer := s.do(req); res.StatusCode != http.StatusForbidden {
			s.t.Errorf("%s from %s: %s %s", path, name, res.Status, answer)
		}
	}
}

func TestLab_ThePagesLeadToEachOther(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, page := range []string{"/", "/lab/shop", "/lab/patterns"} {
		text := s.text(page)
		if strings.Count(text, `aria-current="page"`) != 1 || !strings.Contains(text, fmt.Sprintf(`<a href=%q aria-current="page">`, page)) {
			t.Errorf("%s does not say where it is", page)
		}
		for _, other := range []string{`href="/"`, `href="/lab/shop"`, `href="/lab/patterns"`, `href="/docs"`} {
			if !strings.Contains(text, other) {
				t.Errorf("%s does not lead to %s", page, other)
			}
		}
	}
	for _, script := range []string{"/lab/shop.js", "/lab/patterns.js"} {
		s.text(script)
	}
	if res := s.send("GET", "/lab/none", "", nil); res.StatusCode != http.StatusNotFound {
		t.Errorf("a page that is not there: %s", res.Status)
	}
}
