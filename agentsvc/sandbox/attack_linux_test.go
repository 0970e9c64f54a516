package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"stoa/agentsvc/sandbox"
)

// The attacker is this test binary itself, run in the sandbox with one of these names as its first argument.
const (
	attackCalls  = "attack-calls"
	attackSetuid = "attack-setuid"
	attackFork   = "attack-fork"
	attackTmp    = "attack-tmp"
	attackMemory = "attack-memory"
	attackIDs    = "attack-ids"
)

// runAttack performs the attack that the first argument names and exits. With any other argument it returns to the
// tests.
func runAttack() {
	if len(os.Args) < 2 {
		return
	}
	attack := map[string]func(){
		attackCalls: tryCalls, attackSetuid: trySetuid, attackFork: tryFork, attackTmp: tryTmp, attackMemory: tryMemory, attackIDs: printIDs,
	}[os.Args[1]]
	if attack != nil {
		attack()
		os.Exit(0)
	}
}

// runAttacker runs this binary in the sandbox and returns its output.
func runAttacker(t *testing.T, h *sandbox.Host, p sandbox.Program, name string) string {
	t.Helper()
	file, err := attacker()
	if err != nil {
		t.Fatal(err)
	}
	p.Any, p.Network = true, true // the rights of the program that an operator trusts most
	out, _ := runProgram(t, h, p, file, name)
	return out
}

// attacker is the path of a copy of this binary that every user of the host can execute, like the host's programs.
var attacker = sync.OnceValues(func() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(self)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "stoa-attacker")
	if err != nil {
		return "", err
	}
	cleanUp = func() { _ = os.RemoveAll(dir) }
	file := filepath.Join(dir, "attacker")
	return file, errors.Join(os.Chmod(dir, 0o755), os.WriteFile(file, content, 0o755)) //nolint:gosec // it is a program
})

// cleanUp removes what the tests created outside their own folders.
var cleanUp = func() {}

// forbiddenCalls are system calls that every process of a Linux host may make and a program in a sandbox may not.
var forbiddenCalls = []struct {
	name string
	call func() syscall.Errno
}{
	{"userfaultfd", func() syscall.Errno { return rawCall(unix.SYS_USERFAULTFD, 1, 0, 0, 0, 0) }},
	{"add_key", func() syscall.Errno {
		kind, name := []byte("user\x00"), []byte("stoa\x00")
		return rawCall(unix.SYS_ADD_KEY, pointerTo(kind), pointerTo(name), pointerTo(name), 4, ^uintptr(1)) // to the process's keyring, -2
	}},
	{"request_key", func() syscall.Errno {
		kind, name := []byte("user\x00"), []byte("stoa\x00")
		return rawCall(unix.SYS_REQUEST_KEY, pointerTo(kind), pointerTo(name), 0, 0, 0)
	}},
	{"keyctl", func() syscall.Errno {
		return rawCall(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, ^uintptr(2), 1, 0, 0)
	}},
	{"ptrace", func() syscall.Errno { return rawCall(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0, 0, 0) }},
	{"process_vm_readv", func() syscall.Errno { return rawCall(unix.SYS_PROCESS_VM_READV, uintptr(os.Getpid()), 0, 0, 0, 0) }},
	{"process_vm_writev", func() syscall.Errno { return rawCall(unix.SYS_PROCESS_VM_WRITEV, uintptr(os.Getpid()), 0, 0, 0, 0) }},
	{"bpf", func() syscall.Errno { return rawCall(unix.SYS_BPF, 0, 0, 0, 0, 0) }},
	{"perf_event_open", func() syscall.Errno { return rawCall(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0, 0, 0) }},
	{"io_uring_setup", func() syscall.Errno { return rawCall(unix.SYS_IO_URING_SETUP, 1, 0, 0, 0, 0) }},
	{"personality", func() syscall.Errno { return rawCall(unix.SYS_PERSONALITY, 0x0040000, 0, 0, 0, 0) }},
	{"unshare", func() syscall.Errno { return rawCall(unix.SYS_UNSHARE, unix.CLONE_NEWUSER, 0, 0, 0, 0) }},
	{"setns", func() syscall.Errno { return rawCall(unix.SYS_SETNS, 0, unix.CLONE_NEWUSER, 0, 0, 0) }},
	{"clone of a namespace", func() syscall.Errno {
		return rawCall(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.CLONE_THREAD), 0, 0, 0, 0)
	}},
	{"mount", func() syscall.Errno { return rawCall(unix.SYS_MOUNT, 0, 0, 0, 0, 0) }},
	{"fsopen", func() syscall.Errno { return rawCall(unix.SYS_FSOPEN, 0, 0, 0, 0, 0) }},
	{"pivot_root", func() syscall.Errno { return rawCall(unix.SYS_PIVOT_ROOT, 0, 0, 0, 0, 0) }},
	{"kexec_load", func() syscall.Errno { return rawCall(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0, 0) }},
	{"init_module", func() syscall.Errno { return rawCall(unix.SYS_INIT_MODULE, 0, 0, 0, 0, 0) }},
	{"finit_module", func() syscall.Errno { return rawCall(unix.SYS_FINIT_MODULE, 0, 0, 0, 0, 0) }},
	{"delete_module", func() syscall.Errno { return rawCall(unix.SYS_DELETE_MODULE, 0, 0, 0, 0, 0) }},
	{"open_by_handle_at", func() syscall.Errno { return rawCall(unix.SYS_OPEN_BY_HANDLE_AT, 0, 0, 0, 0, 0) }},
	{"socket of a virtual machine", func() syscall.Errno { return rawCall(unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM, 0, 0, 0) }},
	{"socket of the kernel's ciphers", func() syscall.Errno { return rawCall(unix.SYS_SOCKET, unix.AF_ALG, unix.SOCK_SEQPACKET, 0, 0, 0) }},
}

func rawCall(call uintptr, a, b, c, d, e uintptr) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(call, a, b, c, d, e, 0)
	return errno
}

func pointerTo(text []byte) uintptr { return uintptr(unsafe.Pointer(&text[0])) }

func tryCalls() {
	for _, c := range forbiddenCalls {
		fmt.Printf("%s: %v\n", c.name, c.call())
	}
	// clone3 and openat2 have their flags in memory, which a filter cannot read: they fail with ENOSYS, so that
	// programs use the older calls.
	fmt.Printf("clone3: %v\n", rawCall(unix.SYS_CLONE3, 0, 0, 0, 0, 0))
	fmt.Printf("openat2: %v\n", rawCall(unix.SYS_OPENAT2, 0, 0, 0, 0, 0))
	// Calls of ordinary programs must work.
	fmt.Printf("thread: %v\n", exec.Command("/usr/bin/true").Run())
	fmt.Printf("personality query: %v\n", rawCall(unix.SYS_PERSONALITY, 0xffffffff, 0, 0, 0, 0))
}

// TestForbiddenCalls checks that a program in a sandbox cannot make the system calls that kernel exploits start from.
func TestForbiddenCalls(t *testing.T) {
	t.Parallel()
	forEachSandbox(t, func(t *testing.T, h *sandbox.Host) {
		for _, untrusted := range []bool{false, true} {
			if _, full := h.DescribeIsolation(); !full && untrusted {
				continue
			}
			out := runAttacker(t, h, sandbox.Program{Untrusted: untrusted}, attackCalls)
			for _, c := range forbiddenCalls {
				want := "\n" + c.name + ": " + syscall.EPERM.Error() + "\n"
				if c.name == "io_uring_setup" {
					want = "\n" + c.name + ": " + syscall.ENOSYS.Error() + "\n"
				}
				if !strings.Contains("\n"+out, want) {
					t.Errorf("untrusted %v: want %q in\n%s", untrusted, want, out)
				}
			}
			for _, want := range []string{"clone3: " + syscall.ENOSYS.Error() + "\n", "openat2: " + syscall.ENOSYS.Error() + "\n", "thread: <nil>\n", "personality query: errno 0\n"} {
				if !strings.Contains(out, want) {
					t.Errorf("untrusted %v: want %q in\n%s", untrusted, want, out)
				}
			}
		}
	})
}

// trySetuid tries to create a file that runs as its owner or group, in every way.
func trySetuid() {
	const mode = 0o6755
	file := func(name string) string { // a file whose mode is changed
		if err := os.WriteFile(name, []byte("x"), 0o755); err != nil { //nolint:gosec // it is a program
			fmt.Println(err)
		}
		return name
	}
	fd := func(name string) int {
		n, err := unix.Open(file(name), unix.O_RDONLY, 0)
		if err != nil {
			fmt.Println(err)
		}
		return n
	}
	for name, try := range map[string]func(name string) error{
		"fchmod":   func(name string) error { return unix.Fchmod(fd(name), mode) },
		"fchmodat": func(name string) error { return unix.Fchmodat(unix.AT_FDCWD, file(name), mode, 0) },
		"fchmodat2": func(name string) error {
			path := append([]byte(file(name)), 0)
			at := unix.AT_FDCWD
			return rawCall(unix.SYS_FCHMODAT2, uintptr(at), pointerTo(path), mode, 0, 0)
		},
		"openat":  func(name string) error { _, err := unix.Open(name, unix.O_CREAT|unix.O_WRONLY, mode); return err },
		"mknodat": func(name string) error { return unix.Mknod(name, unix.S_IFREG|mode, 0) },
		"openat2": func(name string) error {
			_, err := unix.Openat2(unix.AT_FDCWD, name, &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: mode})
			return err
		},
		"tmpfile": func(name string) error {
			n, err := unix.Open(".", unix.O_TMPFILE|unix.O_WRONLY, mode)
			if err != nil {
				return err
			}
			return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(n), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
		},
		"plain": func(name string) error { return os.Chmod(file(name), 0o1700) },
	} {
		fmt.Printf("%s: %v\n", name, try(name))
	}
	for name, try := range oldCalls(mode) {
		fmt.Printf("%s: %v\n", name, try(append([]byte(file("old-"+name)), 0), append([]byte("new-"+name), 0)))
	}
}

// TestNoSetuidFiles checks that no program can leave a setuid or setgid file on the host.
func TestNoSetuidFiles(t *testing.T) {
	t.Parallel()
	forEachSandbox(t, func(t *testing.T, h *sandbox.Host) {
		for _, untrusted := range []bool{false, true} {
			if _, full := h.DescribeIsolation(); !full && untrusted {
				continue
			}
			dir := newWritableFolder(t, h, untrusted)
			out := runAttacker(t, h, sandbox.Program{Folder: dir, Untrusted: untrusted}, attackSetuid)
			if !strings.Contains(out, "plain: <nil>") {
				t.Errorf("an ordinary change of mode: %s", out)
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) < 4 {
				t.Fatalf("%v %v: %s", entries, err, out)
			}
			for _, e := range entries {
				info, err := e.Info()
				if err != nil {
					t.Fatal(err)
				}
				if info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
					t.Errorf("untrusted %v: %s has mode %v", untrusted, e.Name(), info.Mode())
				}
				if uid := info.Sys().(*syscall.Stat_t).Uid; untrusted && os.Getuid() == 0 && uid == 0 {
					t.Errorf("%s is root's", e.Name())
				}
			}
		}
	})
}

// newWritableFolder returns a folder that a program can write to.
func newWritableFolder(t *testing.T, h *sandbox.Host, untrusted bool) string {
	t.Helper()
	dir := newFolder(t)
	if untrusted {
		if err := errors.Join(os.Chmod(dir, 0o700), h.ChownFolder(dir)); err != nil { //nolint:gosec // a folder
			t.Fatal(err)
		}
	}
	return dir
}

func printIDs() {
	groups, _ := os.Getgroups()
	fmt.Println(os.Getuid(), os.Geteuid(), os.Getgid(), os.Getegid(), len(groups))
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "Cap") || strings.HasPrefix(line, "NoNewPrivs") {
			fmt.Print(line)
		}
	}
	fmt.Println("setuid:", syscall.Setuid(0))
	for _, path := range []string{"/etc/shadow", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", os.Getenv("SECRET")} {
		_, err := os.ReadFile(path)
		fmt.Printf("read %s: %v\n", path, err != nil)
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		fmt.Printf("write %s: %v\n", path, err != nil)
		_ = f.Close()
	}
}

// TestUntrustedIsAnotherUser checks that a tenant's program is not root if the server is, neither inside nor outside
// the sandbox.
func TestUntrustedIsAnotherUser(t *testing.T) {
	t.Parallel()
	forEachSandbox(t, func(t *testing.T, h *sandbox.Host) {
		if _, full := h.DescribeIsolation(); !full {
			return
		}
		secret := filepath.Join(newFolder(t), "stoa.secrets")
		if err := os.WriteFile(secret, []byte("a secret"), 0o644); err != nil { //nolint:gosec // its mode must not be what protects it
			t.Fatal(err)
		}
		out := runAttacker(t, h, sandbox.Program{Folder: newWritableFolder(t, h, true), Untrusted: true, Env: []string{"SECRET=" + secret}}, attackIDs)
		if os.Getuid() == 0 && !strings.HasPrefix(out, "65534 65534 65534 65534 0\n") {
			t.Errorf("ids: %s", out)
		}
		if strings.Contains(out, "setuid: <nil>") {
			t.Errorf("it becomes root: %s", out)
		}
		for _, want := range []string{"read /etc/shadow: true\n", "write /proc/sys/vm/drop_caches: true\n",
			"write /proc/sys/kernel/core_pattern: true\n", "read " + secret + ": true\n", "write " + secret + ": true\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("want %q in\n%s", want, out)
			}
		}
	})
}

// TestRootRunsNothingUntrusted checks that a server that is root refuses a tenant's program if it cannot start it as
// another user: because that user is root or unknown, or because the sandbox cannot change to it.
func TestRootRunsNothingUntrusted(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	program := sandbox.Program{File: "/usr/bin/env", Folder: folder, Untrusted: true}
	for user, want := range map[string]string{
		"":              "bubblewrap cannot change to user 65534",
		"root":          `the user "root" that programs of apps are to run as is root or in its group`,
		"0":             `the user "0" that programs of apps are to run as is root or in its group`,
		"no-such-user-": `the user "no-such-user-" that programs of apps are to run as is not known`,
	} {
		h := sandbox.NewHost(os.Args[0], sandbox.Options{User: user})
		sandbox.ForceRoot(h, filepath.Join(folder, "no-bwrap"))
		_, err := h.NewCommand(t.Context(), program)
		for of, err := range map[string]error{"CheckUntrusted": h.CheckUntrusted(), "NewCommand": err} {
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--sandbox-user") {
				t.Errorf("user %q: %s returns %v, want %s", user, of, err, want)
			}
		}
	}
}

func tryFork() {
	n := 0
	var err error
	for n < 700 {
		cmd := exec.Command("/usr/bin/sleep", "60")
		if err = cmd.Start(); err != nil {
			break
		}
		n++
	}
	fmt.Printf("started %d: %v\n", n, err)
}

// TestForkBomb checks that a program has a bounded number of processes and that all of them end with it.
func TestForkBomb(t *testing.T) {
	t.Parallel()
	forEachSandbox(t, func(t *testing.T, h *sandbox.Host) {
		if _, full := h.DescribeIsolation(); !full {
			return
		}
		out := runAttacker(t, h, sandbox.Program{Folder: newWritableFolder(t, h, true), Untrusted: true}, attackFork)
		n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(strings.SplitN(out, ":", 2)[0], "started "), ":"))
		if n < 10 || n >= 512 {
			t.Errorf("it %s", out)
		}
	})
}

func tryTmp() {
	total := 0
	block := make([]byte, 1<<20)
	for i := range 2 {
		f, err := os.Create(filepath.Join("/tmp", "f"+strconv.Itoa(i)))
		if err != nil {
			fmt.Println(err)
			break
		}
		for range 100 {
			n, err := f.Write(block)
			if total += n; err != nil {
				fmt.Println(err)
				break
			}
		}
	}
	fmt.Printf("wrote %d\n", total)
	_, err := os.Create("/dev/shm/x")
	fmt.Printf("shm: %v\n", err != nil)
	_, err = os.Create("/dev/x")
	fmt.Printf("dev: %v\n", err != nil)
}

// TestTmpIsBounded checks that a program's files in the memory file systems of its sandbox are bounded.
func TestTmpIsBounded(t *testing.T) {
	t.Parallel()
	forEachSandbox(t, func(t *testing.T, h *sandbox.Host) {
		for _, untrusted := range []bool{false, true} {
			if _, full := h.DescribeIsolation(); !full {
				return
			}
			out := runAttacker(t, h, sandbox.Program{Folder: newWritableFolder(t, h, untrusted), Untrusted: untrusted}, attackTmp)
			_, count, _ := strings.Cut(out, "wrote ")
			if n, err := strconv.Atoi(strings.SplitN(count, "\n", 2)[0]); err != nil || n > 128<<20 {
				t.Errorf("untrusted %v: %s", untrusted, out)
			}
			if !strings.Contains(out, "shm: true\n") || !strings.Contains(out, "dev: true\n") {
				t.Errorf("untrusted %v: /dev can be written: %s", untrusted, out)
			}
		}
	})
}

func tryMemory() {
	const piece = 256 << 20
	total := 0
	for range 12 { // 3 GiB of address space; only one byte of each page group is touched
		b, err := unix.Mmap(-1, 0, piece, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			fmt.Println(err)
			break
		}
		b[0] = 1
		total += piece
	}
	fmt.Printf("mapped %d\n", total)
}

// TestMemoryBomb checks that no process of a program can have more than 2 GiB of private memory.
func TestMemoryBomb(t *testing.T) {
	t.Parallel()
	forEachSandbox(t, func(t *testing.T, h *sandbox.Host) {
		out := runAttacker(t, h, sandbox.Program{}, attackMemory)
		_, count, _ := strings.Cut(out, "mapped ")
		if n, err := strconv.Atoi(strings.TrimSpace(count)); err != nil || n > 2<<30 {
			t.Errorf("it %s", out)
		}
	})
}

// TestPinnedFolder checks that a program does not start in another folder than the pinned one.
func TestPinnedFolder(t *testing.T) {
	t.Parallel()
	forEachSandbox(t, func(t *testing.T, h *sandbox.Host) {
		dir, other := newFolder(t), newFolder(t)
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if out, code := runProgram(t, h, sandbox.Program{Folder: dir, Pinned: info}, "pwd"); code != 0 {
			t.Errorf("its own folder: exit code %d: %s", code, out)
		}
		if err := os.Rename(dir, dir+".old"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(other, dir); err != nil {
			t.Fatal(err)
		}
		if out, code := runProgram(t, h, sandbox.Program{Folder: dir, Pinned: info}, "touch", "made"); code == 0 {
			t.Errorf("it ran: %s", out)
		}
		if entries, _ := os.ReadDir(other); len(entries) != 0 {
			t.Errorf("it wrote %v", entries)
		}
	})
}

// TestPrograms checks that a tenant can execute, and so read, the system's programs, those in its own folders and
// those in folders that the operator names. Another file is neither executed nor visible, whatever its mode, as the
// program itself or as one that it may start.
func TestPrograms(t *testing.T) {
	t.Parallel()
	dir := newFolder(t)
	base, root, foreign := filepath.Join(dir, "root", "work"), filepath.Join(dir, "root"), filepath.Join(dir, "foreign")
	for _, made := range []string{base, foreign} {
		if err := os.MkdirAll(made, 0o755); err != nil { //nolint:gosec // modes must not be what protects
			t.Fatal(err)
		}
	}
	for _, at := range []string{base, root, foreign} {
		if err := os.WriteFile(filepath.Join(at, "backup.sh"), []byte("#!/bin/sh\necho ran # PASSWORD\n"), 0o755); err != nil { //nolint:gosec // as above
			t.Fatal(err)
		}
	}
	helper, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	host := func(programs ...string) *sandbox.Host {
		return sandbox.NewHost(helper, sandbox.Options{ProgramFolders: programs})
	}
	plain := host()
	if err := plain.CheckUntrusted(); err != nil {
		skipLoudly(t, fmt.Sprintf("there is no sandbox for tenants here (install bubblewrap): %v", err))
	}
	if err := plain.ChownFolder(base); err != nil {
		t.Fatal(err)
	}
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	cat, err := filepath.EvalSymlinks("/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		host *sandbox.Host
		file string
		want bool
	}{
		{"the system's", plain, shell, true},
		{"its own folder's", plain, filepath.Join(base, "backup.sh"), true},
		{"its root's", plain, filepath.Join(root, "backup.sh"), true},
		{"another folder's", plain, filepath.Join(foreign, "backup.sh"), false},
		{"a folder's that the operator names", host(foreign), filepath.Join(foreign, "backup.sh"), true},
		{"no program", plain, "/etc/shadow", false},
	} {
		p := sandbox.Program{Folder: base, Root: root, Untrusted: true, File: c.file, Args: []string{filepath.Base(c.file)}}
		cmd, err := c.host.NewCommand(t.Context(), p)
		if (err == nil) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil {
			sandbox.Kill(cmd)
		}
		reads := sandbox.Program{Folder: base, Root: root, Untrusted: true, File: cat, Args: []string{"cat", c.file}, Others: []string{c.file}}
		out, _ := runProgram(t, c.host, reads, "cat", c.file)
		if got := strings.Contains(out, "PASSWORD"); got != (c.want && c.file != shell) {
			t.Errorf("%s: its text is read: %t", c.name, got)
		}
	}
}
