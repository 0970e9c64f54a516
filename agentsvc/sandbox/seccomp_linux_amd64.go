package sandbox

import "golang.org/x/sys/unix"

// Additions to the lists of seccomp_linux.go: calls of amd64 that newer architectures do not have.
var (
	oldRefusedCalls = []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_CREATE_MODULE, unix.SYS_NFSSERVCTL, unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS}
	oldModeCalls    = map[uint32]uint32{unix.SYS_CHMOD: 1, unix.SYS_CREAT: 1, unix.SYS_MKNOD: 1}
	oldCreateCalls  = map[uint32]uint32{unix.SYS_OPEN: 1}
)
