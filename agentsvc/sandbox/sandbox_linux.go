package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"stoa/agentsvc/temporary"
)

// Timing and paths of commands.
const (
	// probeTimeout bounds one probe of a sandbox.
	probeTimeout = 5 * time.Second
	// killWaitDelay is how long Wait waits for the output of a killed program, since a process that survived the kill
	// might keep the pipe open.
	killWaitDelay = time.Second
	// helperPath is the path of the helper inside bubblewrap, whose file system does not contain the server's folder.
	helperPath = "/run/stoa-sandbox"
)

// probeBackend finds the strongest sandbox that works, and whether it can confine untrusted programs.
func (h *Host) probeBackend() backend {
	k := h.findStrongest()
	k.cgroups = findCgroups()
	switch {
	case !k.fullIsolation:
		k.untrustedErr = fmt.Errorf("programs of apps run only in a sandbox, and %q, the only one on this host, cannot confine them: install bubblewrap", k.name)
	case os.Geteuid() == 0:
		k.user, k.untrustedErr = h.findUntrustedUser(k)
	}
	return k
}

// findStrongest returns the strongest sandbox in which a program starts: bubblewrap, else Landlock with namespaces,
// else Landlock alone, else none. Without a seccomp filter for the architecture none has full isolation. It tests by
// running a program, because containers often have the tools but refuse the system calls.
func (h *Host) findStrongest() backend {
	if bwrap := FindProgram("bwrap"); bwrap != "" {
		for _, variant := range []backend{{enclosed: true}, {enclosed: true, noTmp: true}, {}, {noTmp: true}} {
			k := variant
			k.name, k.fullIsolation, k.bwrap, k.namespaces = "bubblewrap", hasFilter(), bwrap, true
			if h.canRun(k, false) {
				return k
			}
		}
	}
	if landlockVersion() == 0 {
		return backend{name: "none"}
	}
	if k := (backend{name: "landlock", fullIsolation: true, namespaces: true}); hasFilter() && h.canRun(k, false) {
		return k
	}
	return backend{name: "landlock without namespaces"}
}

// findUntrustedUser returns the user that untrusted programs run as. It is called if the server is root: such a
// program must not be root, not even inside the sandbox. It returns an error if the sandbox cannot change to that
// user.
func (h *Host) findUntrustedUser(k backend) (*account, error) {
	a, err := findAccount(h.options.User)
	if err == nil {
		if k.user = &a; h.canRun(k, true) {
			return &a, nil
		}
		err = fmt.Errorf("%s cannot change to user %d", k.name, a.UID)
	}
	return nil, fmt.Errorf("the server runs as root and cannot start a program of an app as another user (%w): run the server as an ordinary user, or name one by --sandbox-user", err)
}

// logCapabilities logs what the sandbox offers.
func (b backend) logCapabilities(log *slog.Logger) {
	bounds := "control group: processes and memory of all processes of a program together"
	if b.cgroups.parent == "" {
		bounds = "each process by itself: this server has no control group of version 2 with pids and memory that it may divide"
	}
	attrs := []any{"sandbox", b.name, "holds_tenants", b.untrustedErr == nil, "bounds", bounds}
	if b.user != nil {
		attrs = append(attrs, "user", b.user.UID)
	}
	if b.untrustedErr != nil {
		attrs = append(attrs, "reason", b.untrustedErr.Error())
	}
	log.Info("programs of this host run in a sandbox", attrs...)
}

// canRun reports whether a command of the sandbox k starts. Its program has no File, at which the helper exits with 0
// after it has applied all bounds.
func (h *Host) canRun(k backend, untrusted bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	folder, err := temporary.MakeFolder("probe")
	if err != nil {
		return false
	}
	defer func() { _ = folder.Remove() }()
	cmd, err := h.buildCommand(ctx, k, Program{Folder: folder.Path, Untrusted: untrusted})
	if err != nil {
		return false
	}
	defer Kill(cmd)
	return cmd.Run() == nil
}

// ChownFolder gives a folder to the user that untrusted programs run as, so that they can write in it. It does
// nothing if they run as the server's user.
func (h *Host) ChownFolder(folder string) error {
	if a := h.findBackend().user; a != nil {
		return os.Chown(folder, a.UID, a.GID)
	}
	return nil
}

// buildCommand is NewCommand for the sandbox k, also without a File (a probe).
func (h *Host) buildCommand(ctx context.Context, k backend, p Program) (*exec.Cmd, error) {
	o := helperConfig{Program: p, Apart: k.namespaces, Boxed: k.bwrap != ""}
	if p.Untrusted {
		o.User = k.user
	}
	if p.Pinned != nil {
		if at, ok := p.Pinned.Sys().(*syscall.Stat_t); ok {
			o.Device, o.Inode = uint64(at.Dev), at.Ino //nolint:unconvert // not so wide on every architecture
		}
	}
	if p.Untrusted && p.File != "" {
		if !h.canRunFile(p, p.File) {
			return nil, fmt.Errorf("the program %s lies neither in the system's folders nor in one that was granted; the operator adds folders of programs by --sandbox-programs", p.File)
		}
		o.Others = slices.DeleteFunc(slices.Clone(p.Others), func(file string) bool { return !h.canRunFile(p, file) })
		p.Others = o.Others
	}
	if p.File != "" {
		o.Execute = findLoaders(append([]string{p.File}, p.Others...), o.canInterpret)
	}
	// Landlock permits folders as a whole.
	if own := h.findOwnFiles(append([]string{p.Folder}, p.Read...)); k.bwrap == "" && len(own) > 0 {
		return nil, fmt.Errorf("%s is a file of this server's own, and without bubblewrap a program could read it: name a folder without such files, or install bubblewrap", own[0])
	}
	text, err := o.encodeVariable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, h.helper)
	if k.bwrap != "" {
		cmd = exec.CommandContext(ctx, k.bwrap, h.bubblewrapArgs(k, o)...)
	}
	cmd.Env = append([]string{text}, RaceSettings()...)
	cmd.Dir = p.Folder
	// A session has a process group, so that Kill reaches all of its processes, and no terminal. The first process ends with the
	// server: with the thread that starts it, and threads of the server end with the server only.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	switch {
	case k.namespaces && k.bwrap == "":
		setNamespaces(cmd.SysProcAttr, p.Network, o.User)
	case k.enclosed:
		// bubblewrap's second process, which is the first one in the namespace of the program, asks for its end with bubblewrap
		// at the end of its start only. Were bubblewrap killed before, it would wait for ever, or run the program without it.
		// The kernel ends all processes of a PID namespace with its first one, at any moment.
		mapUsers(cmd.SysProcAttr, o.User)
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWPID
	case o.User != nil:
		// A user namespace of bubblewrap maps one user only; this outer one maps both.
		mapUsers(cmd.SysProcAttr, o.User)
	}
	cmd.Cancel = func() error { Kill(cmd); return nil }
	cmd.WaitDelay = killWaitDelay
	if err := addStartSocket(cmd); err != nil {
		return nil, err
	}
	if err := k.cgroups.startInGroup(cmd); err != nil {
		closeStartSocket(cmd)
		return nil, err
	}
	return cmd, nil
}

// canRunFile reports whether an untrusted program may execute file, and so read it. Other files of the host may
// belong to other tenants or to the operator.
func (h *Host) canRunFile(p Program, file string) bool {
	file, err := filepath.EvalSymlinks(file)
	if err != nil {
		return false
	}
	info, err := os.Stat(file)
	folders := slices.Concat(systemFolders, h.options.ProgramFolders, []string{p.Folder})
	if p.Root != "" {
		folders = append(folders, p.Root)
	}
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 && isUnder(file, folders)
}

// canInterpret reports whether file may be executed because a program names it as its interpreter or linker. A tenant
// writes its scripts: without this check a first line such as #!/etc/secret would make any file of the host readable.
func (c helperConfig) canInterpret(file string) bool {
	return !c.Untrusted || isUnder(file, systemFolders) || isUnder(file, []string{c.Folder})
}

// setNamespaces starts the process in its own user, PID and IPC namespaces, and without network also in an empty
// network namespace. It stays the same user as outside and may become user. It is the first process of its PID
// namespace: when it ends, the kernel kills all others in it.
func setNamespaces(attr *syscall.SysProcAttr, network bool, user *account) {
	mapUsers(attr, user)
	attr.Cloneflags |= syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC
	if !network {
		attr.Cloneflags |= syscall.CLONE_NEWNET
	}
}

// Kill kills the process group and the control group of a command and frees the control group. It may be called more
// than once, also for a command that was not started, and while another goroutine waits for it.
func Kill(cmd *exec.Cmd) {
	closeStartSocket(cmd)
	defer endGroup(cmd)
	if cmd.Process == nil || cmd.Process.Pid <= 1 {
		return
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) {
		_ = cmd.Process.Kill() // it has not yet joined its process group, or was waited for: then this does nothing
	}
}

// systemFolders are the folders of the host that every program may read: installed software, without data of running
// services or of users.
var systemFolders = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"}

// settingsFiles are the files and folders of /etc that programs commonly need: linker settings, the time zone,
// certificates.
var settingsFiles = []string{
	"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types",
	"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/ca-certificates",
}

// networkFiles are what a program with a network reads in addition, to resolve names.
var networkFiles = []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services"}

// bubblewrapArgs returns bubblewrap's arguments for o. The new root contains the system's folders, the visible files
// and the helper read-only, and o.Folder writable. All namespaces are new but the network's of a program that has
// one, capabilities are dropped, and the sandbox dies with the server. There is no --new-session: buildCommand makes the session,
// so that all of bubblewrap's own processes stay in the process group that Kill kills.
func (h *Host) bubblewrapArgs(k backend, o helperConfig) []string {
	args := []string{"--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent", "--cap-drop", "ALL"}
	if o.User == nil {
		args = append(args, "--unshare-user-try")
	} else { // the helper needs these to enter the user's folder and to become the user; then it has none left
		args = append(args, "--cap-add", "CAP_DAC_READ_SEARCH", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
	}
	args = append(args, "--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev")
	if k.noTmp {
		args = append(args, "--dir", "/tmp")
	} else {
		args = append(args, "--perms", "1777", "--size", strconv.Itoa(maxTmpBytes), "--tmpfs", "/tmp")
	}
	visible := settingsFiles
	if o.Network {
		visible = slices.Concat(settingsFiles, networkFiles)
	} else {
		args = append(args, "--unshare-net")
	}
	for _, dir := range systemFolders {
		if target, err := os.Readlink(dir); err == nil {
			args = append(args, "--symlink", target, dir)
			continue
		}
		args = append(args, "--ro-bind-try", dir, dir)
	}
	for _, file := range slices.Concat(o.Execute, o.Read) {
		if !isUnder(file, systemFolders) && !isUnder(file, []string{o.Folder}) {
			visible = append(visible[:len(visible):len(visible)], file)
		}
	}
	if o.User != nil {
		for _, dir := range parentFolders(append(visible[:len(visible):len(visible)], o.Folder, helperPath)) {
			args = append(args, "--perms", "0755", "--dir", dir) // else bubblewrap makes them accessible to its own user only
		}
	}
	for _, file := range visible {
		args = append(args, "--ro-bind-try", file, file)
	}
	// Later arguments override earlier ones: the writable folder comes after the read-only files, the server's own files
	// after both, and the root is made read-only last. A file that something is mounted on cannot be moved or removed.
	args = append(args, "--bind", o.Folder, o.Folder)
	for _, file := range h.findOwnFiles(append(visible[:len(visible):len(visible)], o.Folder)) {
		args = append(args, "--ro-bind", "/dev/null", file)
	}
	args = append(args, "--ro-bind", h.helper, helperPath, "--remount-ro", "/", "--chdir", o.Folder)
	return append(args, "--", helperPath)
}

// findOwnFiles returns the server's own files that exist and are, or lie in, one of the visible files and folders.
func (h *Host) findOwnFiles(visible []string) (files []string) {
	for _, file := range h.options.OwnFiles {
		if file, err := filepath.EvalSymlinks(file); err == nil && isUnder(file, visible) {
			files = append(files, file)
		}
	}
	return files
}

// parentFolders returns the folders above files, each once and after its parent.
func parentFolders(files []string) (dirs []string) {
	for _, file := range files {
		for dir := filepath.Dir(file); dir != "/" && !slices.Contains(dirs, dir); dir = filepath.Dir(dir) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return dirs
}

// isUnder reports whether file is one of folders or below one. Both must be clean absolute paths.
func isUnder(file string, folders []string) bool {
	return slices.ContainsFunc(folders, func(dir string) bool {
		return file == dir || strings.HasPrefix(file, strings.TrimSuffix(dir, "/")+"/")
	})
}
