// SPDX-License-Identifier: MIT

package daemon

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// boot identifies this boot: start times count from it, and a stack's folder may
// outlive it.
var boot = sync.OnceValue(func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
})

// inspect reads /proc/PID/stat. The name in it is in parentheses and may contain
// anything, so the fields are counted from the last parenthesis.
func inspect(pid int) (details, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return details{}, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return details{}, false
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	group, _ := strconv.Atoi(string(fields[2]))
	return details{
		Process: Process{PID: pid, Start: boot() + "/" + string(fields[19])},
		state:   fields[0][0],
		parent:  parent,
		group:   group,
	}, true
}

// processes lists all processes.
func processes() []details {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []details
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if d, ok := inspect(pid); ok {
			all = append(all, d)
		}
	}
	return all
}

// family lists the processes of a server: its first process, and all that run the
// same program inside its folder. PostgreSQL's backends each make a session of
// their own and lose their parent when it is killed, but never leave the data
// folder. The program is compared too, to exclude a shell opened in the folder.
func family(first Process, program, dir string) []Process {
	var members []Process
	for _, d := range processes() {
		if d.state == 'Z' {
			continue
		}
		if d.Process == first || livesIn(d.PID, program, dir) {
			members = append(members, d.Process)
		}
	}
	return members
}

func livesIn(pid int, program, dir string) bool {
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil || (cwd != dir && !strings.HasPrefix(cwd, dir+string(filepath.Separator))) {
		return false
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.TrimSuffix(exe, " (deleted)") == program
}

// awaitEnd returns when the child has ended, and leaves its status to Wait.
func awaitEnd(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// dieWith makes the kernel send sig to the command when this process ends. Go sets
// Pdeathsig after the change of user, which would clear it, and then checks that the
// parent is still alive.
func dieWith(cmd *exec.Cmd, sig syscall.Signal) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = sig
}
