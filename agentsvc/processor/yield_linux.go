package processor

import (
	"runtime"
	"syscall"
)

// yieldThread lets other goroutines run, and then other processes. The kernel preempts a busy thread for one that has
// just become ready only after some milliseconds: a database on the same machine would wait that long before each of
// its answers.
func yieldThread() {
	runtime.Gosched()
	// Not RawSyscall: during Syscall another thread may take over this one's goroutines.
	_, _, _ = syscall.Syscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
}
