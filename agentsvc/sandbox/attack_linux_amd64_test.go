package sandbox_test

import "golang.org/x/sys/unix"

// oldCalls returns the calls that set file modes by path and that newer architectures do not have.
func oldCalls(mode uintptr) map[string]func(old, fresh []byte) error {
	return map[string]func(old, fresh []byte) error{
		"chmod": func(old, _ []byte) error { return rawCall(unix.SYS_CHMOD, pointerTo(old), mode, 0, 0, 0) },
		"creat": func(_, fresh []byte) error { return rawCall(unix.SYS_CREAT, pointerTo(fresh), mode, 0, 0, 0) },
		"open": func(_, fresh []byte) error {
			return rawCall(unix.SYS_OPEN, pointerTo(fresh), unix.O_CREAT|unix.O_WRONLY, mode, 0, 0)
		},
		"mknod": func(_, fresh []byte) error {
			return rawCall(unix.SYS_MKNOD, pointerTo(fresh), unix.S_IFREG|mode, 0, 0, 0)
		},
	}
}
