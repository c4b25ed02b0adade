package pgfault

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"shop/transfer"
)

// Diagram is the record as a mermaid sequence diagram. Times count from the
// moment at which the segment was held.
func (r LateRecord) Diagram() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "    "+format+"\n", args...) }
	at := func(t time.Time) string { return fmt.Sprintf("%.1f ms", float64(t.Sub(r.Held).Microseconds())/1000) }
	b.WriteString("sequenceDiagram\n")
	line("participant A as replica %d", r.Replica+1)
	line("participant L as etcd")
	line("participant N as network")
	line("participant P as PostgreSQL")
	line("participant B as the next holder")
	line("L->>A: account %s is yours%s", r.Account, fenceText(r.OldFence))
	line("A->>N: 0 ms: %s", strings.Join(brief(r.SQL), ", "))
	line("Note over N: held")
	if r.Way == Revoked {
		line("Note over L: %s: lease revoked, replica %d does not know", at(r.Taken), r.Replica+1)
	} else {
		line("Note over A: %s: stopped (SIGSTOP)", at(r.Taken))
		line("Note over L: the lease runs out")
	}
	line("L->>B: account %s is yours%s", r.Account, fenceText(r.NewFence))
	line("B->>P: until %s: commits%s%s", at(r.Overtaken), fenceText(r.NewFence), versions(r.OldVersion, r.NewVersion))
	line("N->>P: %s: delivered, late", at(r.Delivered))
	line("P-->>N: %s: %s", at(cmp.Or(r.Answered, r.Delivered)), cmp.Or(quiet.Replace(r.Answer), "no answer"))
	if !r.Resumed.IsZero() {
		line("Note over A: %s: goes on (SIGCONT)", at(r.Resumed))
	}
	switch {
	case r.Refused:
		line("Note over P: refused, what the next holder wrote stands")
	case r.Committed:
		line("Note over P: committed, what the next holder wrote is gone")
	}
	return b.String()
}

// quiet takes away what means something to mermaid.
var quiet = strings.NewReplacer(";", ",", "#", "", "\n", " ")

func fenceText(fence int64) string {
	if fence == 0 {
		return ""
	}
	return fmt.Sprintf(", fence %d", fence)
}

// versions is empty if only the fence was written.
func versions(before, now int64) string {
	if before == now {
		return ""
	}
	return fmt.Sprintf(", version %d → %d", before, now)
}

// brief says what each statement does, and to what, without repeating itself.
func brief(sql []string) (list []string) {
	for _, s := range sql {
		words := strings.Fields(s)
		switch {
		case len(words) == 0:
			continue
		case transfer.StatementOf(s).Account():
			s = strings.Join(words[:4], " ")
		case strings.HasPrefix(s, "insert into"), strings.HasPrefix(s, "update"), strings.HasPrefix(s, "delete from"):
			s = strings.Join(words[:min(3, len(words))], " ")
		default:
			s = words[0]
		}
		if len(list) == 0 || list[len(list)-1] != s {
			list = append(list, s)
		}
	}
	return list
}
