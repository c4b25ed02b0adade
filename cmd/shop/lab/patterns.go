// SPDX-License-Identifier: MIT

package lab

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

func (l *Lab) patternsPage(w http.ResponseWriter, _ *http.Request) {
	body, err := l.patterns()
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	l.render(w, "patterns.html", map[string]any{"Body": body, "Seconds": l.measureTime.Seconds()})
}

// renderPatterns renders the page without its title. Each pattern gets one more paragraph, for its measurement, or the reason
// why it has none.
func renderPatterns(source []byte, list []measurement, reasons map[string]string, links sourceLinks) (template.HTML, error) {
	markdown := goldmark.New(goldmark.WithExtensions(extension.Table),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(links, 1))))
	doc := markdown.Parser().Parse(text.NewReader(source))
	doc.RemoveChild(doc, doc.FirstChild())
	left := figures{map[string]string{}, maps.Clone(reasons)}
	for _, m := range list {
		left.names[m.Row] = m.Name
	}
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		heading, ok := n.(*ast.Heading)
		if !ok {
			continue
		}
		name := plain(heading, source)
		heading.SetAttributeString("id", []byte(anchor(name)))
		if heading.Level != 3 {
			continue
		}
		id, title, numbered := strings.Cut(name, ". ")
		if !numbered {
			id, title = "", name
		}
		figure, reason, err := left.take(id, title)
		if err != nil {
			return "", err
		}
		p := ast.NewParagraph()
		p.SetAttributeString("data-pattern", []byte(name))
		if figure != "" {
			p.SetAttributeString("data-measure", []byte(figure))
		} else {
			p.SetAttributeString("class", []byte("unmeasured"))
			p.AppendChild(p, ast.NewString([]byte("On this machine: "+reason)))
		}
		for n.NextSibling() != nil && n.NextSibling().Kind() != ast.KindHeading {
			n = n.NextSibling()
		}
		doc.InsertAfter(doc, n, p)
		n = p
	}
	if len(left.names)+len(left.reasons) > 0 {
		return "", fmt.Errorf("docs/patterns.md has no heading for the measurements %v and the reasons %v", left.names, left.reasons)
	}
	var b bytes.Buffer
	err := markdown.Renderer().Render(&b, source, doc)
	return template.HTML(b.String()), err // the text is of this repository, and goldmark omits raw HTML
}

// figures are what the patterns have, by number or title: the name of a measurement, or the reason why there is none.
type figures struct{ names, reasons map[string]string }

// take returns what a pattern has, and deletes it. A wrong variant needs no reason of its own.
func (f figures) take(id, title string) (name, reason string, err error) {
	for _, key := range []string{id, title} {
		name, reason = cmp.Or(name, f.names[key]), cmp.Or(reason, f.reasons[key])
		delete(f.names, key)
		delete(f.reasons, key)
	}
	if reason == "" && strings.HasPrefix(title, "Wrong: ") {
		reason = wrongVariant
	}
	if (name == "") == (reason == "") {
		err = fmt.Errorf("docs/patterns.md, %s %q: measurement %q and reason %q, want one of them", id, title, name, reason)
	}
	return name, reason, err
}

// anchor is the id of a heading, as GitHub makes it: the links of the page are written for both.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// plain is the text of a node.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// measure measures one lock. It answers when the measurement has ended.
func (l *Lab) measure(w http.ResponseWriter, r *http.Request) {
	n := slices.IndexFunc(measurements, func(m measurement) bool { return m.Name == r.PathValue("name") })
	if n < 0 {
		fail(w, http.StatusNotFound, fmt.Errorf("there is no measurement %q; the page names them", r.PathValue("name")))
		return
	}
	if !l.reserve() {
		w.Header().Set("Retry-After", strconv.Itoa(int(raceTime/time.Second)))
		fail(w, http.StatusConflict, ErrRunning)
		return
	}
	defer l.work.Done()
	defer l.release()
	ctx, cancel := context.WithTimeout(r.Context(), l.measureTime+measureWait)
	defer cancel()
	defer context.AfterFunc(l.life, cancel)()
	m := measurements[n]
	result, err := m.run(ctx, l.cfg, l.measureTime)
	switch {
	case errors.Is(err, errNotConfigured):
		fail(w, http.StatusServiceUnavailable, err)
	case err != nil:
		l.cfg.Log.Warn("a pattern could not be measured", "pattern", m.Name, "error", err)
		fail(w, http.StatusServiceUnavailable, fmt.Errorf("no figure: %s failed, is it there? %w", m.Store, err))
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(result)
	}
}
