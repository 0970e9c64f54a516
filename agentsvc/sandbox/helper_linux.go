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

// Bounds of each process.
const (
	maxMemoryBytes = 2 << 30   // bytes of memory it writes
	maxFileBytes   = 512 << 20 // bytes of a file it writes
	maxOpenFiles   = 1024      // open at once
	maxProcesses   = 512       // processes and threads of one program, where the kernel counts them apart
	maxTmpBytes    = 128 << 20 // bytes in /tmp, where that is the program's own
)

// The exit codes of a helper that could not become the program, as shells have them.
const (
	exitSandboxFailed = 126
	exitExecFailed    = 127
)

// RunHelper makes the helper of a process that was started as one: if text, the value of [HelperVariable], is not empty, the
// process takes on the bounds it names, becomes the program, and Enter does not return. It is called before anything else.
func RunHelper(text string) {
	if text == "" {
		return
	}
	runtime.LockOSThread() // what is set for a thread must be set for the one that becomes the program
	var o helperConfig
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.applyBounds()
	}
	if err != nil {
		exitWithError(exitSandboxFailed, err)
	}
	if o.File == "" {
		os.Exit(0) // a probe
	}
	exitWithError(exitExecFailed, syscall.Exec(o.File, o.Args, o.Env))
}

func exitWithError(code int, err error) {
	_, _ = fmt.Fprintf(os.Stderr, "the program was not started: %v\n", err)
	os.Exit(code)
}

// applyBounds puts the bounds of o on the process.
func (o helperConfig) applyBounds() error {
	if err := o.enterFolder(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up privileges: %w", err)
	}
	if err := o.restrictPaths(); err != nil {
		return fmt.Errorf("restrict by Landlock: %w", err)
	}
	limits := map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_DATA: maxMemoryBytes, unix.RLIMIT_FSIZE: maxFileBytes, unix.RLIMIT_NOFILE: maxOpenFiles}
	if o.CPU > 0 {
		limits[unix.RLIMIT_CPU] = uint64(o.CPU.Seconds()) + 1
	}
	if o.Apart {
		limits[unix.RLIMIT_NPROC] = maxProcesses
	}
	for what, n := range limits {
		if err := lowerLimit(what, n); err != nil {
			return fmt.Errorf("limit resource %d: %w", what, err)
		}
	}
	if o.User != nil {
		if err := o.User.becomeUser(); err != nil {
			return err
		}
	}
	if !hasFilter() {
		return nil
	}
	return filterCalls(o.Boxed)
}

// enterFolder goes to the folder, and sees that it is the one that was looked at: a program of the same tenant may have
// put a link in its place meanwhile. What follows names it as the current one, not by its path.
func (o helperConfig) enterFolder() error {
	if err := os.Chdir(o.Folder); err != nil {
		return err
	}
	var now unix.Stat_t
	if err := unix.Stat(".", &now); err != nil {
		return err
	}
	if o.Inode != 0 && (now.Ino != o.Inode || uint64(now.Dev) != o.Device) { //nolint:unconvert // not so wide on every architecture
		return errors.New("another folder has taken the place of its folder")
	}
	return nil
}

// lowerLimit sets a limit to n, or leaves it where it is lower already.
func lowerLimit(what int, n uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(what, &now); err != nil {
		return err
	}
	n = min(n, now.Max)
	return unix.Setrlimit(what, &unix.Rlimit{Cur: n, Max: n})
}
