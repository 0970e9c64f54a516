//go:build linux || darwin

package main

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// boundUnsent sets the bound for a listening socket and thereby for the connections that it accepts.
func boundUnsent(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsentBytes)
	})
	return errors.Join(err, failed)
}
