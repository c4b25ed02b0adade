// SPDX-License-Identifier: MIT

package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"shop/docs"
)

//go:embed *.html *.js *.css uplot/*.js uplot/*.css
var files embed.FS

var pages = template.Must(template.ParseFS(files, "*.html"))

// policy allows the page its own script, style and requests, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const (
	runsKept    = 8
	bodyMax     = 4 << 10
	streamLimit = raceTime + backTime + 10*time.Second
)

// Lab serves the pages. It is an http.Handler for the paths for which Serves returns true.
type Lab struct {
	cfg     Config
	handler http.Handler
	life    context.Context // ends with Stop
	stop    context.CancelFunc
	work    sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	running bool   // a race, or a measurement
	runs    []*run // the newest last

	feed        shopFeed
	patterns    func() (template.HTML, error) // docs/patterns.md for the page
	measureTime time.Duration                 // of each pattern; tests have less
}

// New returns a Lab. It does no I/O.
func New(cfg Config) *Lab {
	l := &Lab{cfg: cfg, feed: shopFeed{windows: make(chan struct{}, windowsMax)}, measureTime: measureTime}
	l.life, l.stop = context.WithCancel(context.Background())
	l.patterns = sync.OnceValues(func() (template.HTML, error) {
		return renderPatterns(docs.Patterns, measurements, unmeasured, sourceLinks{served: cfg.Sources != nil})
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", l.page)
	const script, style = "text/javascript", "text/css"
	for name, kind := range map[string]string{
		"lab.js": script, "shop.js": script, "patterns.js": script, "uplot/uPlot.iife.min.js": script, "lab.css": style, "uplot/uPlot.min.css": style,
	} {
		mux.HandleFunc("GET /lab/"+name, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind+"; charset=utf-8")
			http.ServeFileFS(w, r, files, name)
		})
	}
	mux.HandleFunc("POST /lab/races", l.start)
	mux.HandleFunc("GET /lab/races/{id}", l.download)
	mux.HandleFunc("GET /lab/races/{id}/events", l.events)
	mux.HandleFunc("GET /lab/shop", l.shopPage)
	mux.HandleFunc("GET /lab/shop/events", l.watch)
	mux.HandleFunc("POST /lab/shop/{customer}/v1/{rest...}", l.send)
	mux.HandleFunc("GET /lab/patterns", l.patternsPage)
	mux.HandleFunc("POST /lab/patterns/{name}", l.measure)
	mux.HandleFunc("GET /lab/code/{path...}", l.code)
	l.handler = http.NewCrossOriginProtection().Handler(mux) // another site's page must not start races, or buy
	return l
}

// Serves reports whether a path belongs to the lab.
func Serves(path string) bool { return path == "/" || strings.HasPrefix(path, "/lab/") }

func (l *Lab) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	if !loopback(r.Host) {
		fail(w, http.StatusForbidden, fmt.Errorf("open the page as http://127.0.0.1 or http://localhost, not as %q", r.Host))
		return
	}
	l.handler.ServeHTTP(w, r)
}

// loopback reports whether a Host header names this machine. A page of another site may have a name that leads here, and
// then the same origin.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") || err == nil && addr.IsLoopback()
}

// Stop cancels the race or the measurement that is running, and ends all streams. No other one can be started.
func (l *Lab) Stop() {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	l.stop()
}

// Close is Stop, and waits for them to end.
func (l *Lab) Close() {
	l.Stop()
	l.work.Wait()
}

func (l *Lab) page(w http.ResponseWriter, _ *http.Request) {
	l.render(w, "page.html", map[string]any{
		"Flows": l.cfg.offers(), "ClientsMin": clientsMin, "ClientsMax": clientsMax, "SizeMin": sizeMin, "SizeMax": sizeMax,
	})
}

// render answers with a page.
func (l *Lab) render(w http.ResponseWriter, name string, data any) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		l.cfg.Log.Error("a page of the lab", "page", name, "error", err)
		fail(w, http.StatusInternalServerError, errors.New("the page could not be made; the server's log says why"))
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

// fail answers with an error as JSON.
func fail(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": strings.ReplaceAll(err.Error(), "lab: ", "")})
}

// start starts a race, and answers when its clients begin.
func (l *Lab) start(w http.ResponseWriter, r *http.Request) {
	var s Settings
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyMax))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		fail(w, http.StatusBadRequest, fmt.Errorf("%w: %w", ErrSettings, err))
		return
	}
	run, err := l.open(r.Context(), s)
	switch {
	case errors.Is(err, ErrSettings):
		fail(w, http.StatusBadRequest, err)
	case errors.Is(err, ErrRunning):
		w.Header().Set("Retry-After", strconv.Itoa(int(raceTime/time.Second)))
		fail(w, http.StatusConflict, err)
	case err != nil:
		l.cfg.Log.Warn("a race could not start", "error", err)
		fail(w, http.StatusServiceUnavailable, fmt.Errorf("the race could not start: %w", err))
	default:
		w.Header().Set("Location", "/lab/races/"+run.id)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{"id": run.id, "command": s.Command(), "settings": s.WithDefaults()})
	}
}

// open opens a race and runs it in the background, unless one is running.
func (l *Lab) open(ctx context.Context, s Settings) (*run, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if !l.reserve() {
		return nil, ErrRunning
	}
	opened := false
	defer func() {
		if !opened {
			l.release()
			l.work.Done()
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.life, cancel)()
	race, err := Open(ctx, l.cfg, s)
	if err != nil {
		return nil, err
	}
	opened = true
	run := newRun(rand.Text())
	l.keep(run)
	go func() {
		defer l.work.Done()
		result, err := race.Run(l.life, run.progress)
		if l.life.Err() != nil {
			err = errors.New("the server was stopped")
		}
		race.Close()
		l.release()
		run.end(result, err) // a client that has the verdict may start the next race
	}()
	return run, nil
}

// reserve reports whether a race or a measurement may begin. No other one may until release.
func (l *Lab) reserve() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running || l.stopped {
		return false
	}
	l.running = true
	l.work.Add(1)
	return true
}

func (l *Lab) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = false
}

// keep keeps a run, and forgets the oldest of too many.
func (l *Lab) keep(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs = append(l.runs, r); len(l.runs) > runsKept {
		l.runs = l.runs[1:]
	}
}

// find answers 404 if there is no such run.
func (l *Lab) find(w http.ResponseWriter, r *http.Request) *run {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, run := range l.runs {
		if run.id == r.PathValue("id") {
			return run
		}
	}
	fail(w, http.StatusNotFound, errors.New("no such race: the server keeps the last "+strconv.Itoa(runsKept)+", in memory"))
	return nil
}

// download answers with everything that was recorded.
func (l *Lab) download(w http.ResponseWriter, r *http.Request) {
	run := l.find(w, r)
	if run == nil {
		return
	}
	select {
	case <-run.done:
	case <-r.Context().Done():
		return
	}
	if run.err != nil {
		fail(w, http.StatusServiceUnavailable, run.err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="race-%d.json"`, run.result.Seed))
	_ = json.NewEncoder(w).Encode(run.result)
}
