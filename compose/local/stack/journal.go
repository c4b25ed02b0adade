package stack

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
)

// journal is what the undertaker needs to know. It is written before the answer
// to each request, by rename, so that it is never half a journal.
type journal struct {
	Servers []record
	Adopted []adoptee
}

func journalOf(dir string) string { return filepath.Join(dir, "journal.json") }

// save is called with mu held.
func (s *supervisor) save() error {
	j := journal{Adopted: s.adopted}
	for _, i := range s.servers {
		j.Servers = append(j.Servers, i.now())
	}
	content, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	next := journalOf(s.dir) + ".next"
	return errors.Join(os.WriteFile(next, content, 0o600), os.Rename(next, journalOf(s.dir)))
}

// readJournal gives what is known of the stack in dir: nothing, if nothing was
// started there yet.
func readJournal(dir string) journal {
	var j journal
	if content, err := os.ReadFile(journalOf(dir)); err == nil {
		_ = json.Unmarshal(content, &j)
	}
	return j
}
