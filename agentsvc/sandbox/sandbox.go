// Package sandbox runs programs of this host for agents (MCP servers over stdio, command tools) so that they cannot
// harm the host, the server or other tenants. It is the only package that starts a program for an agent.
//
// A [Host] detects once what the machine offers (bubblewrap, or Landlock with namespaces) and makes commands
// ([Host.NewCommand]). A confined program sees the host's libraries and one folder, writes only in that folder,
// executes only the programs it was given, has no network unless it was granted one, and ends together with every
// process it started. Its processes, memory, file sizes and processor time are bounded.
//
// How a command starts: NewCommand encodes the [Program] into the environment variable [HelperVariable] and starts
// this executable again as a helper, inside bubblewrap or in new namespaces. The helper's main calls [RunHelper],
// which applies the bounds that a process must set for itself (Landlock rules, resource limits, the user, the seccomp
// filter) and then replaces itself with the program by execve.
//
// An untrusted program (one that a tenant chose) is refused on a host without a complete sandbox; see
// [Host.CheckUntrusted]. On systems other than Linux there is no sandbox, and only the operator's own programs run.
// docs/security.md describes the guarantees.
package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// SearchPath is the list of folders in which programs are searched by name. The server's own PATH is not used.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// HelperVariable is the environment variable with the JSON of a helperConfig. A process that starts with it becomes
// the program that it describes; see [RunHelper].
const HelperVariable = "STOA_SANDBOX_PROGRAM"

// Program describes a program to run. Paths are absolute and without symbolic links, because rules of the sandbox
// apply to the resolved path.
type Program struct {
	File   string   // of the executable
	Args   []string // arguments, beginning with the name it is called by
	Env    []string // complete environment, NAME=value: nothing is inherited
	Folder string   // working directory, and all that it can write

	Others  []string      // executables of further programs that it may start
	Any     bool          // it may start every program it sees
	Read    []string      // further files and folders of the host that it may read
	Network bool          // it has the host's network; without it, none
	CPU     time.Duration // processor time of each of its processes, 0 = unlimited

	// Untrusted means that a tenant chose the program. If the server is root, it runs as another user. Its File must
	// be in the system's folders, in Root, in Folder or in one of [Options.ProgramFolders]; entries of Others that
	// are not are removed, because a program can read what it may execute. The interpreter of a script must be in the
	// system's folders or in Folder.
	Untrusted bool
	// Root is the host folder that the tenant was granted, "" = Folder alone.
	Root string
	// Pinned is the folder as it was when the grant was checked. The program does not start if Folder is another one
	// by then (see enterFolder); nil = not checked.
	Pinned fs.FileInfo `json:"-"`
}

// Options configure a [Host]. The zero value works.
type Options struct {
	// User is the name or number of the user that untrusted programs run as if the server is root; "nobody" if empty.
	User string
	// ProgramFolders are further folders of the host whose programs tenants may run and read.
	ProgramFolders []string
	// OwnFiles are absolute paths of the server's own files, which no program may see. Those that do not exist when a
	// program starts are ignored.
	OwnFiles []string
	// Log receives one record that describes the sandbox; it may be nil.
	Log *slog.Logger
}

// Host runs programs on this machine. It is safe for concurrent use and immutable but for findBackend, which detects
// the sandbox at its first call.
type Host struct {
	helper      string // path of this executable
	options     Options
	findBackend func() backend // sync.OnceValue of probeBackend; tests replace it
}

// backend is the sandbox that this machine offers, as probeBackend found it. It is a value and never changes.
type backend struct {
	name          string   // for logs and errors
	fullIsolation bool     // it confines a malicious program: files, network, processes
	bwrap         string   // path of bubblewrap, "" = not used
	namespaces    bool     // programs get process and network namespaces of their own
	enclosed      bool     // bubblewrap itself is the first process of a PID namespace
	noTmp         bool     // this bubblewrap has no --size: there is no writable /tmp
	user          *account // of untrusted programs; nil = the server's own
	// cgroups makes a control group for each program; its zero value makes none.
	cgroups cgroupFactory
	// untrustedErr is the reason why untrusted programs cannot run; nil = they can.
	untrustedErr error
}

// NewHost returns a Host. helper is the path of an executable whose main begins with [RunHelper], normally this one.
// The sandbox is detected at the first use, not here, since the probe starts processes.
func NewHost(helper string, o Options) *Host {
	h := &Host{helper: helper, options: o}
	h.findBackend = sync.OnceValue(func() backend {
		k := h.probeBackend()
		if o.Log != nil {
			k.logCapabilities(o.Log)
		}
		return k
	})
	return h
}

// DescribeIsolation returns the name of the sandbox, and whether it confines a program that is malicious: its files,
// its network and the end of every process it started. The first call probes the machine, up to some seconds.
func (h *Host) DescribeIsolation() (name string, full bool) {
	k := h.findBackend()
	return k.name, k.fullIsolation
}

// CheckUntrusted returns why no untrusted program can run here, nil if they can. Either there is no complete sandbox,
// or the server is root and cannot start a program as another user.
func (h *Host) CheckUntrusted() error { return h.findBackend().untrustedErr }

// NewCommand returns a command that runs p. When ctx ends, or when the program does, every process that it started is
// killed. After [exec.Cmd.Wait] the caller must call [Kill], also after an error of Start: it frees the control
// group and a socket, and it kills leftovers on a host whose sandbox cannot.
func (h *Host) NewCommand(ctx context.Context, p Program) (*exec.Cmd, error) {
	if !filepath.IsAbs(p.File) || !filepath.IsAbs(p.Folder) {
		return nil, fmt.Errorf("the program %q and its folder %q must be absolute paths", p.File, p.Folder)
	}
	k := h.findBackend()
	if p.Untrusted && k.untrustedErr != nil {
		return nil, k.untrustedErr
	}
	return h.buildCommand(ctx, k, p)
}

// helperConfig is what the helper reads from [HelperVariable], as JSON.
type helperConfig struct {
	Program
	Execute []string // files that may be executed, with their loaders
	// Apart means that the program is in a PID namespace, where RLIMIT_NPROC counts its processes alone.
	Apart bool
	Boxed bool     // in its own mount namespace: /tmp and /proc are private
	User  *account // the user to become; nil = none

	Device, Inode uint64 // identity of Folder from Program.Pinned; 0 = not checked
}

// encodeVariable returns HelperVariable=JSON. The kernel bounds one variable of an environment (MAX_ARG_STRLEN, 128
// KiB).
func (c helperConfig) encodeVariable() (string, error) {
	const longest = 128<<10 - 64
	text, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	if len(text) > longest {
		return "", fmt.Errorf("the arguments of a program are longer than %d bytes", longest)
	}
	return HelperVariable + "=" + string(text), nil
}
