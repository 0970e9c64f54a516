package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Bounds of a program's processes. All but maxProcesses and maxTmpBytes are resource limits of each process
// (setrlimit); a control group bounds the memory and the number of processes of the whole program, if the host has
// one.
const (
	maxMemoryBytes = 2 << 30   // bytes of private writable memory (RLIMIT_DATA)
	maxFileBytes   = 512 << 20 // bytes of one file it writes
	maxOpenFiles   = 1024      // file descriptors
	maxProcesses   = 512       // processes and threads of one program
	maxTmpBytes    = 128 << 20 // bytes in /tmp, which is in memory
)

// Exit codes of a helper that could not become the program, as shells use them.
const (
	exitSandboxFailed = 126
	exitExecFailed    = 127
)

// RunHelper turns a process that was started as the helper into the program. If text, the value of [HelperVariable],
// is empty, it returns at once: the process is not a helper. Otherwise it applies the bounds that text describes,
// replaces the process by the program and never returns. A main that calls it must do so before anything else.
func RunHelper(text string) {
	if text == "" {
		return
	}
	// Landlock, seccomp and users are set for the calling thread, which must be the one that calls execve.
	runtime.LockOSThread()
	var o helperConfig
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.applyBounds()
	}
	if err != nil {
		exitWithError(exitSandboxFailed, err)
	}
	if o.File == "" {
		os.Exit(0) // a probe of canRun
	}
	exitWithError(exitExecFailed, syscall.Exec(o.File, o.Args, o.Env))
}

// exitWithError reports on standard error why the program did not start, and exits.
func exitWithError(code int, err error) {
	_, _ = fmt.Fprintf(os.Stderr, "the program was not started: %v\n", err)
	os.Exit(code)
}

// applyBounds applies the bounds of o to the calling thread. The order matters: the folder is entered while its path
// is still reachable, PR_SET_NO_NEW_PRIVS is required by Landlock and seccomp, the user changes while the
// capabilities for it exist, and the filter comes last so that it need not allow the calls of the steps before it.
func (c helperConfig) applyBounds() error {
	if err := c.enterFolder(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up privileges: %w", err)
	}
	if err := c.restrictPaths(); err != nil {
		return fmt.Errorf("restrict by Landlock: %w", err)
	}
	limits := map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_DATA: maxMemoryBytes, unix.RLIMIT_FSIZE: maxFileBytes, unix.RLIMIT_NOFILE: maxOpenFiles}
	if c.CPU > 0 {
		limits[unix.RLIMIT_CPU] = uint64(c.CPU.Seconds()) + 1 // seconds, rounded up
	}
	// RLIMIT_NPROC counts the processes of a user in its namespace. Without one it would count the server's too.
	if c.Apart {
		limits[unix.RLIMIT_NPROC] = maxProcesses
	}
	for what, n := range limits {
		if err := lowerLimit(what, n); err != nil {
			return fmt.Errorf("limit resource %d: %w", what, err)
		}
	}
	if c.User != nil {
		if err := c.User.becomeUser(); err != nil {
			return err
		}
	}
	// The kernel forgets at a change of the user that the process is to end with its parent.
	if err := endWithParent(); err != nil {
		return fmt.Errorf("end with the server: %w", err)
	}
	if !hasFilter() {
		return nil
	}
	return filterCalls(c.Boxed)
}

// enterFolder changes to the program's folder and checks that it is the one that was pinned: a program of the same
// tenant may have replaced it by a symbolic link since. The later rules name it as ".", not by its path.
func (c helperConfig) enterFolder() error {
	if err := os.Chdir(c.Folder); err != nil {
		return err
	}
	var now unix.Stat_t
	if err := unix.Stat(".", &now); err != nil {
		return err
	}
	if c.Inode != 0 && (now.Ino != c.Inode || uint64(now.Dev) != c.Device) { //nolint:unconvert // not so wide on every architecture
		return errors.New("its working directory was replaced by another folder")
	}
	return nil
}

// lowerLimit sets a resource limit to n, or to its hard limit if that is lower.
func lowerLimit(what int, n uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(what, &now); err != nil {
		return err
	}
	n = min(n, now.Max)
	return unix.Setrlimit(what, &unix.Rlimit{Cur: n, Max: n})
}
