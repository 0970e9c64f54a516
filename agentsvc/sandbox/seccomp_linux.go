package sandbox

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// architectures are those whose system calls are known here.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// hasFilter reports whether [filterCalls] can be used.
func hasFilter() bool {
	_, ok := architectures[runtime.GOARCH]
	return ok
}

// Offsets in what a filter looks at, struct seccomp_data of <linux/seccomp.h>: of an argument, its lower half. Both
// architectures are little-endian.
const (
	callOffset          = 0
	archOffset          = 4
	firstArgumentOffset = 16 // of the first; each takes 8 bytes
)

// refusedCalls answer EPERM. They reach parts of the kernel that no ordinary program needs and that attacks on kernels
// begin with, or act on processes, mounts and namespaces outside.
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

// unsupportedCalls answer ENOSYS: programs then do without them. Of clone3 and openat2 a filter cannot see what they are to
// do, since that stands in memory, and io_uring does what other calls are refused.
var unsupportedCalls = []uint32{
	unix.SYS_CLONE3, unix.SYS_OPENAT2, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
}

// modeCalls are the calls that give a file its mode, with the position of that argument.
var modeCalls = map[uint32]uint32{unix.SYS_FCHMOD: 1, unix.SYS_FCHMODAT: 2, unix.SYS_FCHMODAT2: 2, unix.SYS_MKNODAT: 2}

// createCalls are the calls that may make a file, with the position of their flags, behind which the mode stands.
var createCalls = map[uint32]uint32{unix.SYS_OPENAT: 2}

const (
	// namespaceFlags are the flags of clone that begin a namespace.
	namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	// setIDModes are the modes that make a file run as its owner or group.
	setIDModes = unix.S_ISUID | unix.S_ISGID
	// createFlags are the flags with which opening makes a file: O_CREAT, and O_TMPFILE without the flag of folders in it.
	createFlags = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY
	// x32CallBit begins the second table of calls that amd64 has.
	x32CallBit = 0x4000_0000
	// queryPersonality only asks which personality is in force.
	queryPersonality = 0xffff_ffff
)

const (
	returnEPERM  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	returnENOSYS = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	returnEACCES = unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)
	returnAllow  = unix.SECCOMP_RET_ALLOW
)

// filterCalls holds the calling thread, and the program that it becomes, to the list of this file, in every sandbox the
// same. Without localSockets it has no sockets of the file system either: a program that sees the host's may write to one of
// them, such as a database's or a container engine's, and speak to the service behind it, and neither namespaces nor older
// versions of Landlock stand in between.
func filterCalls(localSockets bool) error {
	filter := buildCallFilter(localSockets)
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

// buildCallFilter is a sequence of blocks. Each either answers or leaves the number of the call loaded for the next.
func buildCallFilter(localSockets bool) []unix.SockFilter {
	filter := []unix.SockFilter{
		loadWord(archOffset), jumpIf(unix.BPF_JEQ, architectures[runtime.GOARCH], 1, 0), returnAction(unix.SECCOMP_RET_KILL_PROCESS),
		loadWord(callOffset), jumpIf(unix.BPF_JGE, x32CallBit, 0, 1), returnAction(returnEPERM),
	}
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

func argumentOffset(n uint32) uint32 { return firstArgumentOffset + 8*n }

func loadWord(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// jumpIf skips as many instructions as yes or no says.
func jumpIf(condition uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | condition | unix.BPF_K, Jt: yes, Jf: no, K: k}
}

func returnAction(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}
