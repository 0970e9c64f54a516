package surface

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// setCork has the system keep what is written to a connection until it is told to go on, so that an answer that is written in
// parts wakes its reader once (tcp(7), TCP_CORK).
func setCork(conn syscall.RawConn, on bool) {
	value := 0
	if on {
		value = 1
	}
	_ = conn.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, value) }) // it goes without
}
