//go:build !linux

package surface

import "syscall"

// cork is for Linux alone.
func cork(syscall.RawConn, bool) {}
