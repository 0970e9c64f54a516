package response

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// setCork (docs/decisions/cork-long-answers.md) makes the kernel hold back partial segments of a connection until it is called with false (tcp(7), TCP_CORK).
// A response that net/http writes in two parts then leaves in full segments and wakes its reader once. Errors are
// ignored: the response is then only slower.
func setCork(conn syscall.RawConn, on bool) {
	value := 0
	if on {
		value = 1
	}
	_ = conn.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, value) })
}
