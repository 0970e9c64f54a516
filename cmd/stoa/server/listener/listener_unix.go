//go:build linux || darwin

package listener

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// boundUnsent sets TCP_NOTSENT_LOWAT on a listening socket; accepted connections inherit it.
func boundUnsent(_, _ string, raw syscall.RawConn) error {
	var failed error
	// Control returns its own error only; the callback's is kept apart.
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsentBytes)
	})
	return errors.Join(err, failed)
}
