// SPDX-License-Identifier: MIT

package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The forms of lines that the diagrams of the pages use, a part of what Mermaid understands.
var (
	participant = regexp.MustCompile(`^participant (\w+)(?: as [^;#]+)?$`)
	message     = regexp.MustCompile(`^(\w+)(?:->>|-->>|-x|--x)(\w+): [^;#]+$`)
	diagramNote = regexp.MustCompile(`^Note (?:over|left of|right of) (\w+)(?:,\s*(\w+))?: [^;#]+$`)
	node        = regexp.MustCompile(`^(\w+)(?:\["[^"]+"\]|\{"[^"]+"\})$`)
	edge        = regexp.MustCompile(`^(\w+) -->(?:\|"[^"|]+"\|)? (\w+)$`)
)

// mermaid returns the mistakes of a diagram: lines of an unknown form, names that are not declared, and parts of
// a flowchart that do not hang together. It is not Mermaid's own parser, which needs a browser.
func mermaid(lines []string) (wrong []string) {
	if len(lines) < 2 {
		return []string{"an empty diagram"}
	}
	switch strings.TrimSpace(lines[0]) {
	case "sequenceDiagram":
		return sequence(lines[1:])
	case "flowchart TD":
		return flowchart(lines[1:])
	}
	return []string{"an unknown kind of diagram: " + lines[0]}
}

func sequence(lines []string) (wrong []string) {
	var declared, used []string
	for _, line := range lines {
		line = strings.TrimSpace(line)
		switch {
		case participant.MatchString(line):
			declared = append(declared, participant.FindStringSubmatch(line)[1])
		case message.MatchString(line):
			used = append(used, message.FindStringSubmatch(line)[1:]...)
		case diagramNote.MatchString(line):
			used = append(used, diagramNote.FindStringSubmatch(line)[1:]...)
		default:
			wrong = append(wrong, "not a line of a sequence diagram: "+line)
		}
	}
	return append(wrong, compare(declared, used)...)
}

func flowchart(lines []string) (wrong []string) {
	var declared, reached []string
	from := map[string]int{}
	for _, line := range lines {
		line = strings.TrimSpace(line)
		switch {
		case node.MatchString(line):
			name := node.FindStringSubmatch(line)[1]
			if len(declared) == 0 {
				reached = append(reached, name) // the root
			}
			declared = append(declared, name)
			if strings.Contains(line, "{") {
				from[name] = -2 // a question has at least two answers
			}
		case edge.MatchString(line):
			m := edge.FindStringSubmatch(line)
			from[m[1]]++
			reached = append(reached, m[2])
			if !slices.Contains(declared, m[1]) {
				wrong = append(wrong, "an edge from an unknown node: "+m[1])
			}
		default:
			wrong = append(wrong, "not a line of a flowchart: "+line)
		}
	}
	for name, answers := range from {
		if answers < 0 {
			wrong = append(wrong, "a question with fewer than two answers: "+name)
		}
	}
	return append(wrong, compare(declared, reached)...)
}

// compare returns names that are used and not declared, declared twice, or declared and not used.
func compare(declared, used []string) (wrong []string) {
	for i, name := range declared {
		if slices.Contains(declared[:i], name) {
			wrong = append(wrong, "declared twice: "+name)
		}
		if !slices.Contains(used, name) {
			wrong = append(wrong, "declared and not used: "+name)
		}
	}
	for _, name := range used {
		if name != "" && !slices.Contains(declared, name) {
			wrong = append(wrong, fmt.Sprintf("used and not declared: %s", name))
		}
	}
	return wrong
}

func TestMermaid_NoticesMistakes(t *testing.T) {
	const (
		talk = "sequenceDiagram\n    participant A as a server\n    participant B\n    A->>B: read\n    Note over A,B: they met\n    B-->>A: 1"
		tree = "flowchart TD\n    a{\"Hot?\"}\n    b[\"row\"]\n    c[\"combined\"]\n    a -->|\"no\"| b\n    a -->|\"yes\"| c"
	)
	for name, c := range map[string]struct {
		diagram string
		wrong   int
	}{
		"a sequence":                       {talk, 0},
		"a tree":                           {tree, 0},
		"nothing":                          {"", 1},
		"another kind":                     {strings.Replace(tree, "flowchart TD", "pie", 1), 1},
		"an arrow without a text":          {strings.Replace(talk, "B: read", "B", 1), 1},
		"an arrow to an unknown name":      {strings.Replace(talk, "A->>B: read", "A->>C: read", 1), 1},
		"a note over an unknown name":      {strings.Replace(talk, "A,B: they", "A,C: they", 1), 1},
		"a semicolon, which ends the line": {strings.Replace(talk, "read", "read; write", 1), 1},
		"a participant that is silent":     {talk + "\n    participant C", 1},
		"a participant twice":              {talk + "\n    participant A", 1},
		"a node that is not reached":       {tree + "\n    d[\"alone\"]", 1},
		"an edge to nothing":               {tree + "\n    a -->|\"perhaps\"| d", 1},
		"an edge from nothing":             {tree + "\n    d -->|\"perhaps\"| b", 1},
		"a question with one answer":       {strings.Replace(tree, "\n    a -->|\"yes\"| c", "\n    b --> c", 1), 1},
		"a label without quotes":           {strings.Replace(tree, "\"no\"", "no (never)", 1), 3},
		"a bracket that is not closed":     {strings.Replace(tree, "[\"row\"]", "[\"row\"", 1), 2},
	} {
		if wrong := mermaid(strings.Split(c.diagram, "\n")); len(wrong) != c.wrong {
			t.Errorf("%s: %q, want %d", name, wrong, c.wrong)
		}
	}
}
