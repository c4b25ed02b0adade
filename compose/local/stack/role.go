// SPDX-License-Identifier: MIT

package stack

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// The roles that one program plays. The role is argv[0], so that `ps` shows it and
// no variable for it reaches a server's environment.
const (
	roleLauncher   = "shop-stack-launcher"
	roleSupervisor = "shop-stack-supervisor"
	roleReaper     = "shop-stack-reaper"
)

// The file descriptors that a role inherits.
const (
	fdReport     = 3 // both: held open until the end; the supervisor writes one line to it
	fdLock       = 4 // supervisor: the folder's lock, released by the kernel however the supervisor ends
	fdParentPipe = 5 // supervisor: closes when its owner is gone; absent when detached
	fdOrphaned   = 4 // reaper: closes when the supervisor is gone
)

// Reexec must be the first call in main, or TestMain, of a program that calls
// Open: the supervisor and the reaper run the same program. Reexec returns at once
// in the program itself and never in a role.
func Reexec() {
	var err error
	switch os.Args[0] {
	case roleLauncher:
		err = launcher(os.Args[1:])
	case roleSupervisor:
		err = supervise(os.Args[1], len(os.Args) > 2)
	case roleReaper:
		err = runReaper(os.Args[1])
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// launcher starts the supervisor and exits, so that the supervisor becomes a child of
// init: a kill of the whole process tree does not reach it. The launcher closes inherited
// descriptors, because the supervisor would keep a caller's pipe open.
func launcher(args []string) error {
	for fd := 3; fd < 1024; fd++ {
		syscall.CloseOnExec(fd)
	}
	files := []*os.File{os.NewFile(fdReport, "report"), os.NewFile(fdLock, "lock")}
	if len(args) > 1 {
		files = append(files, os.NewFile(fdParentPipe, "parentPipe"))
	}
	return role(roleSupervisor, files, args...).Start()
}

// role returns a command that runs this program again in a new session, where no terminal
// signal reaches it. Its stderr goes to a file in the stack's folder.
func role(name string, files []*os.File, args ...string) *exec.Cmd {
	return &exec.Cmd{
		Path:        self(),
		Args:        append([]string{name}, args...),
		Dir:         "/",
		Stderr:      openLog(args[0], name),
		ExtraFiles:  files,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
}

// self returns the path of this program. On Linux it works even after `go run` has removed
// the file.
func self() string {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe"
	}
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}
