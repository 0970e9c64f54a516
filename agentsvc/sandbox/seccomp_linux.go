package sandbox

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// architectures are the architectures whose system call numbers this filter knows, with their kernel constants.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// hasFilter reports whether [filterCalls] supports this architecture.
func hasFilter() bool {
	_, ok := architectures[runtime.GOARCH]
	return ok
}

// Offsets in struct seccomp_data of <linux/seccomp.h>, in bytes. A 64-bit argument is read by its lower half, which
// comes first on both architectures (little-endian).
const (
	callOffset          = 0
	archOffset          = 4
	firstArgumentOffset = 16 // each argument has 8 bytes
)

// refusedCalls fail with EPERM. They reach parts of the kernel that ordinary programs do not need and that kernel
// exploits often start from, or they act on processes, mounts and namespaces outside the sandbox.
var refusedCalls = []uint32{
	unix.SYS_USERFAULTFD, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_PROCESS_MADVISE,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_FANOTIFY_INIT, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_SYSLOG, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_SWAPON, unix.SYS_SWAPOFF,
	unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_UNSHARE, unix.SYS_SETNS,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_REBOOT,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP,
}

// unsupportedCalls fail with ENOSYS, so that programs fall back to older calls. clone3 and openat2 have their flags
// in memory, which a filter cannot read; io_uring executes operations that the filter would refuse as calls.
var unsupportedCalls = []uint32{
	unix.SYS_CLONE3, unix.SYS_OPENAT2, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
}

// modeCalls are the calls that set the mode of a file, with the index of that argument.
var modeCalls = map[uint32]uint32{unix.SYS_FCHMOD: 1, unix.SYS_FCHMODAT: 2, unix.SYS_FCHMODAT2: 2, unix.SYS_MKNODAT: 2}

// createCalls are the calls that may create a file, with the index of the flags; the mode is the argument after it.
var createCalls = map[uint32]uint32{unix.SYS_OPENAT: 2}

// Values that the filter compares with.
const (
	// namespaceFlags are the flags of clone that create a namespace.
	namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	// setIDModes are the mode bits that make an executable run as its owner or group. A file with them in a writable
	// folder of the host would outlive the sandbox.
	setIDModes = unix.S_ISUID | unix.S_ISGID
	// createFlags are the open flags that create a file: O_CREAT, and O_TMPFILE without O_DIRECTORY, which it
	// contains.
	createFlags = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY
	// x32CallBit marks the x32 calls of amd64, a second table of numbers for the same calls.
	x32CallBit = 0x4000_0000
	// queryPersonality is the argument of personality that only reads the present value.
	queryPersonality = 0xffff_ffff
)

// Results of the filter.
const (
	returnEPERM  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	returnENOSYS = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	returnEACCES = unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)
	returnAllow  = unix.SECCOMP_RET_ALLOW
)

// filterCalls applies the filter of this file to the calling thread and the program that it becomes. It is the same
// in every sandbox but for localSockets: without it AF_UNIX sockets are refused. A program that sees the host's file
// system could otherwise connect to the socket of a database or a container engine; neither namespaces nor older
// versions of Landlock prevent that.
func filterCalls(localSockets bool) error {
	filter := buildCallFilter(localSockets)
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

// buildCallFilter returns the filter as classic BPF: a sequence of blocks, one for each call. A block either returns
// a result or leaves the call's number in the accumulator for the next block, so that a block that loads an argument
// must return on every path. Foreign architectures are killed and x32 calls refused before all else, since their
// numbers mean other calls.
func buildCallFilter(localSockets bool) []unix.SockFilter {
	filter := []unix.SockFilter{
		loadWord(archOffset), jumpIf(unix.BPF_JEQ, architectures[runtime.GOARCH], 1, 0), returnAction(unix.SECCOMP_RET_KILL_PROCESS),
		loadWord(callOffset), jumpIf(unix.BPF_JGE, x32CallBit, 0, 1), returnAction(returnEPERM),
	}
	// add appends a block that is executed for one call and skipped for all others.
	add := func(call uint32, block ...unix.SockFilter) {
		filter = append(filter, jumpIf(unix.BPF_JEQ, call, 0, uint8(len(block))))
		filter = append(filter, block...)
	}
	for _, call := range append(refusedCalls, oldRefusedCalls...) {
		add(call, returnAction(returnEPERM))
	}
	for _, call := range unsupportedCalls {
		add(call, returnAction(returnENOSYS))
	}
	add(unix.SYS_CLONE, loadWord(argumentOffset(0)), jumpIf(unix.BPF_JSET, namespaceFlags, 0, 1), returnAction(returnEPERM), returnAction(returnAllow))
	add(unix.SYS_PERSONALITY, loadWord(argumentOffset(0)), jumpIf(unix.BPF_JEQ, 0, 2, 0), jumpIf(unix.BPF_JEQ, queryPersonality, 1, 0), returnAction(returnEPERM), returnAction(returnAllow))
	for _, calls := range []map[uint32]uint32{modeCalls, oldModeCalls} {
		for call, mode := range calls {
			add(call, loadWord(argumentOffset(mode)), jumpIf(unix.BPF_JSET, setIDModes, 0, 1), returnAction(returnEPERM), returnAction(returnAllow))
		}
	}
	for _, calls := range []map[uint32]uint32{createCalls, oldCreateCalls} {
		for call, flags := range calls {
			add(call, loadWord(argumentOffset(flags)), jumpIf(unix.BPF_JSET, uint32(createFlags), 0, 3),
				loadWord(argumentOffset(flags+1)), jumpIf(unix.BPF_JSET, setIDModes, 0, 1), returnAction(returnEPERM), returnAction(returnAllow))
		}
	}
	unixFamily := returnAction(returnEACCES)
	if localSockets {
		unixFamily = returnAction(returnAllow)
	}
	add(unix.SYS_SOCKET, loadWord(argumentOffset(0)),
		jumpIf(unix.BPF_JEQ, unix.AF_UNIX, 0, 1), unixFamily,
		jumpIf(unix.BPF_JEQ, unix.AF_INET, 3, 0), jumpIf(unix.BPF_JEQ, unix.AF_INET6, 2, 0), jumpIf(unix.BPF_JEQ, unix.AF_NETLINK, 1, 0),
		returnAction(returnEPERM), returnAction(returnAllow))
	return append(filter, returnAction(returnAllow))
}

// argumentOffset returns the offset of argument n, counted from 0.
func argumentOffset(n uint32) uint32 { return firstArgumentOffset + 8*n }

// loadWord loads 32 bits of seccomp_data into the accumulator.
func loadWord(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// jumpIf compares the accumulator with k and skips yes instructions if the condition holds, else no.
func jumpIf(condition uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | condition | unix.BPF_K, Jt: yes, Jf: no, K: k}
}

// returnAction ends the filter with a result.
func returnAction(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}
