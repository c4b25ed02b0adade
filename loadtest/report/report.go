// Package report shows what a proof found: a table for the terminal, prove.json for
// programs, and one page that needs nothing but itself, with plots.
package report

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"

	"shop/loadtest"
)

// Write makes prove.json and index.html in a folder, and the whole history of
// what was not as expected.
func Write(folder string, r loadtest.Report) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "prove.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	old, _ := filepath.Glob(filepath.Join(folder, "history-*.jsonl"))
	for _, file := range old { // of an earlier run: they would mislead
		_ = os.Remove(file)
	}
	for _, s := range r.Scenarios {
		if s.AsExpected {
			continue
		}
		name := "history-" + strings.ReplaceAll(s.Name(), "/", "-") + ".jsonl"
		if err := create(filepath.Join(folder, name), func(w io.Writer) error { return history(w, s) }); err != nil {
			return err
		}
	}
	return create(filepath.Join(folder, "index.html"), func(w io.Writer) error { return HTML(w, r) })
}

// history is every attempt of a scenario, a line each.
func history(w io.Writer, r loadtest.Result) error {
	lines := json.NewEncoder(w)
	for _, record := range r.Records {
		for _, attempt := range record.Attempts {
			if err := lines.Encode(attempt); err != nil {
				return err
			}
		}
	}
	return nil
}

func create(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(file); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
