// SPDX-License-Identifier: MIT

package examples

import (
	"context"
	"crypto/rand"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"shop/locking/servertest"
)

// typedBlocks returns the sh blocks of a page below the comment that names a test.
func typedBlocks(page, test string) (blocks [][]string) {
	var block []string
	inside, marked := false, false
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case inside && line == "```":
			blocks, block, inside, marked = append(blocks, block), nil, false, false
		case inside:
			block = append(block, line)
		case line == "<!-- "+test+" -->":
			marked = true
		case line == "```sh" && marked:
			inside = true
		case line != "":
			marked = false
		}
	}
	return blocks
}

// typedPages are the pages whose commands are typed as they are, in one shell for each page, on one replica, and
// the number of their blocks. The last ends with a new epoch, which the replica does not know.
var typedPages = []struct {
	name   string
	blocks int
}{{"transfer.md", 1}, {"wallet.md", 1}, {"operations.md", 7}}

func TestTyped_ThePagesSayWhatTheShopAnswers(t *testing.T) {
	r := startLab(t)
	addresses := strings.NewReplacer("http://127.0.0.1:8080", r.api, "http://127.0.0.1:9090", r.metrics,
		`psql "$SHOP_POSTGRES_URL"`, `psql "`+servertest.Env(t, "SHOP_POSTGRES_URL")+`"`) // psql refuses the search_path of a test
	for _, page := range typedPages {
		t.Run(page.name, func(t *testing.T) {
			blocks := typedBlocks(read(t, "docs/"+page.name), "docs/examples/typed_test.go")
			if len(blocks) != page.blocks {
				t.Fatalf("%d blocks are typed, want %d", len(blocks), page.blocks)
			}
			checkTyped(t, r.root, r.env, blocks, addresses)
		})
	}
	r.metricsExist(t)
}

// line is a typed line: its text, what its comment expects, and what it printed.
type line struct{ text, expected, printed string }

var comment = regexp.MustCompile(`\s# (\d{3}\b.*|prints .*)$`)

// checkTyped types blocks, and checks what their lines print.
func checkTyped(t *testing.T, dir string, env []string, blocks [][]string, as *strings.Replacer) {
	t.Helper()
	checkPrinted(t, typed(t, dir, env, blocks, as))
}

func checkPrinted(t *testing.T, lines []line) {
	t.Helper()
	checked := 0
	for at, line := range lines {
		if line.expected == "" {
			continue
		}
		checked++
		if err := answers(line.printed, line.expected); err != nil {
			t.Errorf("line %d: %s\n%v\nit printed %s", at+1, line.text, err, line.printed)
		}
	}
	if checked < 3 {
		t.Errorf("%d lines say what is printed: this tests nothing", checked)
	}
}

// typed types the commands of blocks into one shell.
func typed(t *testing.T, dir string, env []string, blocks [][]string, as *strings.Replacer) (lines []line) {
	t.Helper()
	mark := "typed " + rand.Text()
	script := ""
	for _, block := range blocks {
		for i := 0; i < len(block); i++ {
			l := line{text: block[i]}
			for i+1 < len(block) && strings.HasPrefix(block[i+1], " ") { // the command goes on
				i++
				l.text += "\n" + block[i]
			}
			if m := comment.FindStringSubmatch(l.text); m != nil {
				l.expected = m[1]
			}
			lines = append(lines, l)
			script += l.text + "\necho; echo '" + mark + "'\n"
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", as.Replace(script))
	shell.Env, shell.Dir = env, dir
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	shell.WaitDelay = 5 * time.Second
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, printed := range strings.SplitN(string(out), mark+"\n", len(lines)+1)[:len(lines)] {
		lines[i].printed = strings.TrimSpace(printed)
	}
	return lines
}

// answers checks what a line printed: the status of an HTTP answer, if one is expected, and the parts of the text
// between ellipses, in their order. What follows ": " or a second sentence is explanation.
func answers(printed, expected string) error {
	if text, prints := strings.CutPrefix(expected, "prints "); prints {
		return parts(printed, text)
	}
	status, rest := expected[:3], expected[3:]
	if !strings.HasSuffix(printed, " "+status) {
		return fmt.Errorf("want status %s", status)
	}
	if end := strings.LastIndex(rest, "}"); end >= 0 {
		return parts(printed, strings.TrimSpace(rest[:end+1]))
	}
	return nil
}

func parts(printed, text string) error {
	for part := range strings.SplitSeq(text, "…") {
		part = strings.Trim(part, ",") // the fields beside it may be others
		at := strings.Index(printed, part)
		if at < 0 {
			return fmt.Errorf("want %q", part)
		}
		printed = printed[at+len(part):]
	}
	return nil
}

// The negative control.
func TestAnswers_NoticesADifference(t *testing.T) {
	const printed = `{"id":"7","left":0,"total":1780} 201`
	for expected, good := range map[string]bool{
		`201`: true, `201 {"id":"…",…,"total":1780}`: true, `201 {…,"left":0,…}: there was one`: true, `prints "left":0`: true,
		`409`: false, `201 {"id":"…",…,"total":1781}`: false, `201 {…,"total":1780,…,"left":0}`: false, `prints "left":1`: false,
	} {
		if err := answers(printed, expected); (err == nil) != good {
			t.Errorf("%s: %v", expected, err)
		}
	}
	const page = "<!-- a_test.go -->\n\n```sh\nhere\n```\n```sh\nnot here\n```\n<!-- b_test.go -->\n```sh\nnor here\n```\n"
	if blocks := typedBlocks(page, "a_test.go"); len(blocks) != 1 || len(blocks[0]) != 1 || blocks[0][0] != "here" {
		t.Errorf("%q", blocks)
	}
}
