//go:build !linux

package response

import "syscall"

// setCork does nothing: TCP_CORK exists on Linux only.
func setCork(syscall.RawConn, bool) {}
