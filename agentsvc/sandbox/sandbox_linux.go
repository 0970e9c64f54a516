package sandbox

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// enough is how long a probe may take.
	enough = 5 * time.Second
	// patience is how long a killed program's output is waited for.
	patience = time.Second
	// inside is where a program that is held by bubblewrap finds the helper.
	inside = "/run/stoa-sandbox"
)

// probe finds the strongest sandbox that works.
func (h *Host) probe() holder {
	if bwrap := Find("bwrap"); bwrap != "" {
		if k := (holder{name: "bubblewrap", whole: true, bwrap: bwrap, apart: true}); h.works(k) {
			return k
		}
	}
	if landlockVersion() == 0 {
		return holder{name: "none"}
	}
	if k := (holder{name: "landlock", whole: true, apart: true}); hasFilter() && h.works(k) {
		return k
	}
	return holder{name: "landlock without namespaces"}
}

// works reports whether a program that does nothing can be run by k.
func (h *Host) works(k holder) bool {
	ctx, cancel := context.WithTimeout(context.Background(), enough)
	defer cancel()
	folder, err := os.MkdirTemp("", "stoa-probe")
	if err != nil {
		return false
	}
	defer func() { _ = os.Remove(folder) }()
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return false
	}
	cmd, err := h.command(ctx, k, Program{Folder: folder})
	return err == nil && cmd.Run() == nil
}

func (h *Host) command(ctx context.Context, k holder, p Program) (*exec.Cmd, error) {
	o := order{Program: p, Apart: k.apart, Boxed: k.bwrap != ""}
	if p.File != "" {
		o.Execute = loaders(append([]string{p.File}, p.Others...))
	}
	text, err := o.encode()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, h.helper)
	if k.bwrap != "" {
		cmd = exec.CommandContext(ctx, k.bwrap, h.box(o)...)
	}
	cmd.Env = []string{text}
	cmd.Dir = p.Folder
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if k.apart && k.bwrap == "" {
		setApart(cmd.SysProcAttr, p.Network)
	}
	cmd.Cancel = func() error { Kill(cmd); return nil }
	cmd.WaitDelay = patience
	return cmd, nil
}

// setApart gives a process namespaces of its own, in which it is nobody else than outside. As the first process of its
// namespace it takes all others with it when it ends.
func setApart(attr *syscall.SysProcAttr, network bool) {
	attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC
	if !network {
		attr.Cloneflags |= syscall.CLONE_NEWNET
	}
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
}

// Kill ends whatever is left of a command that was started.
func Kill(cmd *exec.Cmd) {
	if cmd.Process == nil || cmd.Process.Pid <= 1 {
		return
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) && cmd.ProcessState == nil {
		_ = cmd.Process.Kill() // it has no group yet
	}
}

// system are the folders of the host that every program may read: what is installed, and nothing of what runs or of
// whom it belongs to.
var system = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"}

// etc is what programs read of the host's settings.
var etc = []string{
	"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types",
	"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/ca-certificates",
}

// names is what a program with a network reads as well.
var names = []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services"}

// box returns bubblewrap's arguments.
func (h *Host) box(o order) []string {
	args := []string{"--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"}
	show := etc
	if o.Network {
		args = append(args, "--share-net")
		show = slices.Concat(etc, names)
	}
	for _, dir := range system {
		if target, err := os.Readlink(dir); err == nil {
			args = append(args, "--symlink", target, dir)
			continue
		}
		args = append(args, "--ro-bind-try", dir, dir)
	}
	for _, file := range slices.Concat(o.Execute, o.Read) {
		if !under(file, system) && !under(file, []string{o.Folder}) {
			show = append(show[:len(show):len(show)], file)
		}
	}
	for _, file := range show {
		args = append(args, "--ro-bind-try", file, file)
	}
	args = append(args, "--bind", o.Folder, o.Folder, "--ro-bind", h.helper, inside, "--remount-ro", "/", "--chdir", o.Folder)
	return append(args, "--", inside)
}

// under reports whether file lies in one of folders.
func under(file string, folders []string) bool {
	return slices.ContainsFunc(folders, func(dir string) bool {
		return file == dir || strings.HasPrefix(file, strings.TrimSuffix(dir, "/")+"/")
	})
}
