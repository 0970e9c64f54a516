//go:build linux || darwin

package main

import "golang.org/x/sys/unix"

// descriptors returns how many files and connections the process may have open, 0 = nobody knows. Go has raised the bound to the
// hard one when the process began.
func descriptors() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return limit.Cur
}
