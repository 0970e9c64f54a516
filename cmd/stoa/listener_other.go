//go:build !linux && !darwin

package main

import "syscall"

// boundUnsent leaves the bound to the system.
func boundUnsent(string, string, syscall.RawConn) error { return nil }
