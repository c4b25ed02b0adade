package main

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

type proc struct {
	parent int
	state  string
	args   string
}

func (p proc) alive() bool { return p.state != "" && p.state[0] != 'Z' }

// ps looks from outside, not with the code under test.
func ps(t *testing.T) map[int]proc {
	t.Helper()
	out, err := exec.Command("ps", "-axo", "pid=,ppid=,state=,args=").Output()
	if err != nil {
		t.Fatalf("ps (package procps): %v", err)
	}
	all := map[int]proc{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		pid, _ := strconv.Atoi(f[0])
		parent, _ := strconv.Atoi(f[1])
		all[pid] = proc{parent: parent, state: f[2], args: strings.Join(f[3:], " ")}
	}
	return all
}

// descendants are a process and all below it.
func descendants(t *testing.T, pid int) []int {
	t.Helper()
	all, found := ps(t), []int{pid}
	for n := 0; n < len(found); n++ {
		for child, p := range all {
			if p.parent == found[n] {
				found = append(found, child)
			}
		}
	}
	return found
}

// role finds the supervisor or the undertaker of a stack.
func role(t *testing.T, name, dir string) int {
	t.Helper()
	for pid, p := range ps(t) {
		if strings.HasPrefix(p.args, "shop-stack-"+name+" "+dir) && p.alive() {
			return pid
		}
	}
	t.Fatalf("no %s of %s runs", name, dir)
	return 0
}
