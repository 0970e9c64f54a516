//go:build !linux

package surface

import "syscall"

// setCork is for Linux alone.
func setCork(syscall.RawConn, bool) {}
