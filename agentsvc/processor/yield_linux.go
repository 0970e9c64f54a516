package processor

import (
	"runtime"
	"syscall"
)

// yieldThread lets goroutines that can run do so, and then other processes: the kernel stops a busy thread for one that has just become
// ready only after some milliseconds. A database on the same machine would wait that long for each of its answers.
func yieldThread() {
	runtime.Gosched()
	_, _, _ = syscall.Syscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) // not RawSyscall: while the thread is out, another takes its goroutines
}
