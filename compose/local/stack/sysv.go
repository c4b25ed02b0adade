package stack

import "golang.org/x/sys/unix"

// removeSharedMemory gives a System V segment back, if nobody is attached to it.
func removeSharedMemory(id int) {
	var desc unix.SysvShmDesc
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &desc); err != nil || desc.Nattch > 0 {
		return
	}
	_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
}
