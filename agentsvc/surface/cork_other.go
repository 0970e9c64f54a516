//go:build !linux

package surface

import "syscall"

// setCork does nothing: TCP_CORK exists on Linux only.
func setCork(syscall.RawConn, bool) {}
