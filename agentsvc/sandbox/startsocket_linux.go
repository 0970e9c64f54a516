package sandbox

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// startSocketFD is the descriptor of the helper's end of the start socket. Before the helper becomes the program it asks the
// server, and ends if there is no answer. By then each process of the program has asked the kernel to end with its parent
// (PR_SET_PDEATHSIG). The kernel sends no signal for a parent that ended before, and a server that is being killed can lose
// its children while its memory is freed and its files are still open: only an answer shows that it had not lost them.
const startSocketFD = 3

// startSockets are the server's and the helper's ends of the sockets of commands, until Kill.
var startSockets sync.Map // *exec.Cmd to [2]*os.File

// addStartSocket gives cmd a start socket and answers its helper. Kill closes the socket.
func addStartSocket(cmd *exec.Cmd) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	server, helper := os.NewFile(uintptr(fds[0]), "start socket"), os.NewFile(uintptr(fds[1]), "start socket of a program")
	cmd.ExtraFiles = []*os.File{helper} // the first one is startSocketFD
	startSockets.Store(cmd, [2]*os.File{server, helper})
	go func() {
		question := make([]byte, 1)
		if _, err := io.ReadFull(server, question); err == nil {
			_, _ = server.Write(question)
		}
	}()
	return nil
}

// closeStartSocket closes the start socket of cmd, if that is still open.
func closeStartSocket(cmd *exec.Cmd) {
	if ends, ok := startSockets.LoadAndDelete(cmd); ok {
		for _, end := range ends.([2]*os.File) {
			_ = end.Close()
		}
	}
}

// errServerEnded reports that the server ended while it started a program.
var errServerEnded = errors.New("the server has ended")

// endWithParent makes this process end with its parent, and returns an error if the server has ended before.
func endWithParent() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	socket := os.NewFile(startSocketFD, "start socket")
	message := []byte{0}
	if _, err := socket.Write(message); err != nil {
		return errServerEnded
	}
	if _, err := io.ReadFull(socket, message); err != nil {
		return errServerEnded
	}
	return socket.Close()
}
