//go:build linux || darwin

package listener

import "golang.org/x/sys/unix"

// countDescriptors returns how many files and connections the process may have open, 0 if that is unknown. The Go runtime
// raises the soft limit to the hard limit when the process starts, so that this is the hard limit.
func countDescriptors() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return limit.Cur
}
