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
)

const (
	// probeTimeout is how long a probe may take.
	probeTimeout = 5 * time.Second
	// killWaitDelay is how long a killed program's output is waited for.
	killWaitDelay = time.Second
	// helperPath is where a program that is held by bubblewrap finds the helper.
	helperPath = "/run/stoa-sandbox"
)

// probeBackend finds the strongest sandbox that works, and how it holds untrusted programs.
func (h *Host) probeBackend() backend {
	k := h.findStrongest()
	k.cgroups = findCgroups()
	switch {
	case !k.fullIsolation:
		k.untrustedErr = fmt.Errorf("a program of this host needs a sandbox to be held with, and this host has none that holds a tenant's: it has %q; install bubblewrap", k.name)
	case os.Geteuid() == 0:
		k.user, k.untrustedErr = h.findUntrustedUser(k)
	}
	return k
}

// findStrongest finds the strongest sandbox that works. On an architecture whose system calls are not known none is whole.
func (h *Host) findStrongest() backend {
	if bwrap := FindProgram("bwrap"); bwrap != "" {
		for _, noTmp := range []bool{false, true} {
			if k := (backend{name: "bubblewrap", fullIsolation: hasFilter(), bwrap: bwrap, namespaces: true, noTmp: noTmp}); h.canRun(k, false) {
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

// findUntrustedUser finds the user that untrusted programs run as, since the server is root.
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

// logCapabilities logs what holds programs.
func (k backend) logCapabilities(log *slog.Logger) {
	bounds := "control group: processes and memory of all processes of a program together"
	if k.cgroups.parent == "" {
		bounds = "each process by itself: this server has no control group of version 2 with pids and memory that it may divide"
	}
	attrs := []any{"sandbox", k.name, "holds_tenants", k.untrustedErr == nil, "bounds", bounds}
	if k.user != nil {
		attrs = append(attrs, "user", k.user.UID)
	}
	if k.untrustedErr != nil {
		attrs = append(attrs, "reason", k.untrustedErr.Error())
	}
	log.Info("programs of this host are held by a sandbox", attrs...)
}

// canRun reports whether a program that does nothing can be run by k.
func (h *Host) canRun(k backend, untrusted bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	folder, err := os.MkdirTemp("", "stoa-probe")
	if err != nil {
		return false
	}
	defer func() { _ = os.Remove(folder) }()
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return false
	}
	cmd, err := h.buildCommand(ctx, k, Program{Folder: folder, Untrusted: untrusted})
	if err != nil {
		return false
	}
	defer Kill(cmd)
	return cmd.Run() == nil
}

// ChownFolder makes a folder the user's that untrusted programs run as.
func (h *Host) ChownFolder(folder string) error {
	if a := h.findBackend().user; a != nil {
		return os.Chown(folder, a.UID, a.GID)
	}
	return nil
}

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
	text, err := o.encodeVariable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, h.helper)
	if k.bwrap != "" {
		cmd = exec.CommandContext(ctx, k.bwrap, h.bubblewrapArgs(k, o)...)
	}
	cmd.Env = []string{text}
	cmd.Dir = p.Folder
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	switch {
	case k.namespaces && k.bwrap == "":
		setNamespaces(cmd.SysProcAttr, p.Network, o.User)
	case o.User != nil:
		mapUsers(cmd.SysProcAttr, o.User) // bubblewrap's own namespace of users has room for one only
	}
	cmd.Cancel = func() error { Kill(cmd); return nil }
	cmd.WaitDelay = killWaitDelay
	return cmd, k.cgroups.startInGroup(cmd)
}

// canRunFile reports whether a tenant may run a file, and with that read it: the rest of the host holds what belongs to others.
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

// canInterpret reports whether a file may be run because a program names it as its interpreter or linker. A tenant writes the
// scripts that its program may run, and must not choose among the host's files with them.
func (o helperConfig) canInterpret(file string) bool {
	return !o.Untrusted || isUnder(file, systemFolders) || isUnder(file, []string{o.Folder})
}

// setNamespaces gives a process namespaces of its own, in which it is nobody else than outside, but may become user. As the
// first process of its namespace it takes all others with it when it ends.
func setNamespaces(attr *syscall.SysProcAttr, network bool, user *account) {
	mapUsers(attr, user)
	attr.Cloneflags |= syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC
	if !network {
		attr.Cloneflags |= syscall.CLONE_NEWNET
	}
}

// Kill ends whatever is left of a command, and frees what it took, also of one that could not be started.
func Kill(cmd *exec.Cmd) {
	defer endGroup(cmd)
	if cmd.Process == nil || cmd.Process.Pid <= 1 {
		return
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) && cmd.ProcessState == nil {
		_ = cmd.Process.Kill() // it has no group yet
	}
}

// systemFolders are the folders of the host that every program may read: what is installed, and nothing of what runs or of
// whom it belongs to.
var systemFolders = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"}

// settingsFiles is what programs read of the host's settings.
var settingsFiles = []string{
	"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types",
	"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/ca-certificates",
}

// networkFiles is what a program with a network reads as well.
var networkFiles = []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services"}

// bubblewrapArgs returns bubblewrap's arguments.
func (h *Host) bubblewrapArgs(k backend, o helperConfig) []string {
	args := []string{"--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent", "--new-session", "--cap-drop", "ALL"}
	if o.User == nil {
		args = append(args, "--unshare-user-try")
	} else { // the helper needs them to enter the user's folder and to become the user, and has none left then
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
			args = append(args, "--perms", "0755", "--dir", dir) // else bubblewrap makes them for its own user alone
		}
	}
	for _, file := range visible {
		args = append(args, "--ro-bind-try", file, file)
	}
	args = append(args, "--bind", o.Folder, o.Folder, "--ro-bind", h.helper, helperPath, "--remount-ro", "/", "--chdir", o.Folder)
	return append(args, "--", helperPath)
}

// parentFolders returns the folders above files, each after the one that it lies in and once.
func parentFolders(files []string) (dirs []string) {
	for _, file := range files {
		for dir := filepath.Dir(file); dir != "/" && !slices.Contains(dirs, dir); dir = filepath.Dir(dir) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return dirs
}

// isUnder reports whether file lies in one of folders.
func isUnder(file string, folders []string) bool {
	return slices.ContainsFunc(folders, func(dir string) bool {
		return file == dir || strings.HasPrefix(file, strings.TrimSuffix(dir, "/")+"/")
	})
}
