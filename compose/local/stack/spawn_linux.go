package stack

import (
	"os/exec"
	"syscall"
)

const killSignal = syscall.SIGKILL

// dieWith asks the kernel to send sig to the command when we are gone. Go sets
// it after the change of user, which would clear it, and looks afterwards
// whether we were gone before.
func dieWith(cmd *exec.Cmd, sig syscall.Signal) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = sig
}
