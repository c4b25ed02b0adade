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

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	table "github.com/yuin/goldmark/extension/ast"
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

// renderPatterns renders the page without its title. Each row of a table of patterns gets one more cell, for the
// measurement of this row, or the reason why it has none.
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
		if t, ok := n.(*table.Table); ok {
			if err := prepareTable(t, source, left); err != nil {
				return "", err
			}
		}
	}
	if len(left.names)+len(left.reasons) > 0 {
		return "", fmt.Errorf("docs/patterns.md has no row for the measurements %v and the reasons %v", left.names, left.reasons)
	}
	var b bytes.Buffer
	err := markdown.Renderer().Render(&b, source, doc)
	return template.HTML(b.String()), err // the text is of this repository, and goldmark omits raw HTML
}

// figures are what the rows of the tables of patterns have, by row: the name of a measurement, or the reason why there is none.
type figures struct{ names, reasons map[string]string }

// take returns what a row has, and deletes it. The row has a number, which may be "", and a pattern.
func (f figures) take(row []string) (name, reason string, err error) {
	for _, key := range row {
		name, reason = cmp.Or(name, f.names[key]), cmp.Or(reason, f.reasons[key])
		delete(f.names, key)
		delete(f.reasons, key)
	}
	if (name == "") == (reason == "") {
		err = fmt.Errorf("docs/patterns.md, row %q: measurement %q and reason %q, want one of them", row, name, reason)
	}
	return name, reason, err
}

// prepareTable labels the cells of a table with its headings, for narrow screens, and adds the cells of measurements.
// It takes from left what it has added.
func prepareTable(t *table.Table, source []byte, left figures) error {
	var labels []string
	for cell := t.FirstChild().FirstChild(); cell != nil; cell = cell.NextSibling() {
		labels = append(labels, plain(cell, source))
	}
	patterns := labels[1] == "pattern"
	if patterns {
		t.SetAttributeString("class", []byte("patterns"))
		head := table.NewTableCell()
		head.AppendChild(head, ast.NewString([]byte("on this machine")))
		t.FirstChild().AppendChild(t.FirstChild(), head)
	}
	for row := t.FirstChild().NextSibling(); row != nil; row = row.NextSibling() {
		var names []string // the number of the pattern, and the pattern
		at := 0
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			cell.SetAttributeString("data-label", []byte(labels[at]))
			if at < 2 {
				names = append(names, plain(cell, source))
			}
			at++
		}
		if patterns {
			cell := table.NewTableCell()
			cell.SetAttributeString("data-label", []byte("on this machine"))
			name, reason, err := left.take(names)
			if err != nil {
				return err
			}
			if name != "" {
				cell.SetAttributeString("data-measure", []byte(name))
			} else {
				cell.SetAttributeString("class", []byte("unmeasured"))
				cell.AppendChild(cell, ast.NewString([]byte(reason)))
			}
			row.AppendChild(row, cell)
		}
	}
	return nil
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
