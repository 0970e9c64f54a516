package sandbox

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// architectures are those whose system calls are known here.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// hasFilter reports whether [filterSockets] can be used.
func hasFilter() bool {
	_, ok := architectures[runtime.GOARCH]
	return ok
}

// Offsets in what a filter looks at, struct seccomp_data of <linux/seccomp.h>. Both architectures are little-endian.
const (
	atCall     = 0
	atArch     = 4
	atArgument = 16
)

// filterSockets refuses the calling thread, and the program that it becomes, sockets of the host's file system: whoever
// may write one of them, such as a database's or a container engine's, may speak to the service behind it, and neither
// namespaces nor older versions of Landlock stand in between.
func filterSockets() error {
	const x32 = 0x4000_0000 // the second table of calls that amd64 has
	refuse := unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)
	filter := []unix.SockFilter{
		load(atArch),
		jump(unix.BPF_JEQ, architectures[runtime.GOARCH], 1, 0),
		answer(unix.SECCOMP_RET_KILL_PROCESS),
		load(atCall),
		jump(unix.BPF_JGE, x32, 4, 0),
		jump(unix.BPF_JEQ, unix.SYS_IO_URING_SETUP, 3, 0), // makes sockets as well
		jump(unix.BPF_JEQ, unix.SYS_SOCKET, 0, 3),
		load(atArgument),
		jump(unix.BPF_JEQ, unix.AF_UNIX, 0, 1),
		answer(refuse),
		answer(unix.SECCOMP_RET_ALLOW),
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// jump skips as many instructions as yes or no says.
func jump(condition uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | condition | unix.BPF_K, Jt: yes, Jf: no, K: k}
}

func answer(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}
