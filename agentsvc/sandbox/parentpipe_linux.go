package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// parentPipeFD is the descriptor of the writing end of the parent pipe in the first process of a program. The server has the
// reading end, so that the process can find out that the server has ended: it must do so after it has asked the kernel to
// end with its parent (PR_SET_PDEATHSIG), because the kernel sends no signal for a parent that ended before.
// bubblewrap finds out as it writes what it has made to the pipe (--info-fd): it ends if no process reads there.
const parentPipeFD = 3

// parentPipes are both ends of the pipes of commands, until Kill.
var parentPipes sync.Map // *exec.Cmd to [2]*os.File

// addParentPipe gives cmd a parent pipe. Kill closes it.
func addParentPipe(cmd *exec.Cmd) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.ExtraFiles = []*os.File{write} // the first one is parentPipeFD
	parentPipes.Store(cmd, [2]*os.File{read, write})
	return nil
}

// closeParentPipe closes the parent pipe of cmd, if that is still open.
func closeParentPipe(cmd *exec.Cmd) {
	if ends, ok := parentPipes.LoadAndDelete(cmd); ok {
		for _, end := range ends.([2]*os.File) {
			_ = end.Close()
		}
	}
}

// errServerEnded reports that the server ended while it started a program.
var errServerEnded = errors.New("the server has ended")

// endWithParent makes this process end with its parent, and returns an error if the server has ended before. Under
// bubblewrap, which has a parent pipe of its own, the parent is bubblewrap's.
func (c helperConfig) endWithParent() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	if c.Boxed {
		return nil
	}
	ends := []unix.PollFd{{Fd: parentPipeFD}} // an error of the pipe is reported without being asked for
	_, err := unix.Poll(ends, 0)
	for errors.Is(err, unix.EINTR) {
		_, err = unix.Poll(ends, 0)
	}
	if err != nil {
		return err
	}
	if ends[0].Revents != 0 {
		return errServerEnded
	}
	return unix.Close(parentPipeFD)
}
