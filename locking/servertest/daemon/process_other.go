// SPDX-License-Identifier: MIT

//go:build !linux

package daemon

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// inspect runs ps for one process.
func inspect(pid int) (details, bool) {
	found := ps("-p", strconv.Itoa(pid))
	if len(found) == 0 {
		return details{}, false
	}
	return found[0], true
}

// processes lists all processes.
func processes() []details { return ps("-ax") }

// ps runs ps with its portable columns. lstart has a resolution of one second, so a pid
// that is reused within the same second is taken for the old process.
func ps(selection ...string) []details {
	out, err := exec.Command("ps", append(selection, "-o", "pid=,ppid=,pgid=,state=,lstart=")...).Output()
	if err != nil {
		return nil
	}
	var all []details
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != 9 {
			continue
		}
		pid, _ := strconv.Atoi(f[0])
		parent, _ := strconv.Atoi(f[1])
		group, _ := strconv.Atoi(f[2])
		start := strings.Join(f[4:], " ")
		all = append(all, details{
			Process: Process{PID: pid, Start: start},
			parent:  parent,
			group:   group,
			state:   f[3][0],
		})
	}
	return all
}

// family lists a server's first process and its descendants. It does not compare
// program and folder, which ps does not report.
func family(first Process, _, _ string) []Process {
	all := processes()
	members := map[int]bool{first.PID: true}
	for range all { // children may be listed before their parents
		before := len(members)
		for _, d := range all {
			if members[d.parent] {
				members[d.PID] = true
			}
		}
		if len(members) == before {
			break
		}
	}
	var found []Process
	for _, d := range all {
		if members[d.PID] && d.state != 'Z' && (d.PID != first.PID || d.Start == first.Start) {
			found = append(found, d.Process)
		}
	}
	return slices.Clip(found)
}

// dieWith does nothing: outside Linux only a reaper ends the servers.
func dieWith(*exec.Cmd, syscall.Signal) {}

func awaitEnd(int) {}
