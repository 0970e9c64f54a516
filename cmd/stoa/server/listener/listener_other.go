//go:build !linux && !darwin

package listener

import "syscall"

// boundUnsent does nothing: this system has no such bound, or Go has no name for it.
func boundUnsent(string, string, syscall.RawConn) error { return nil }
