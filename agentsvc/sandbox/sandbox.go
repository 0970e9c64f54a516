// Package sandbox is the only way from an agent to a program of this host. A [Host] finds out what the machine offers to
// hold a program with (bubblewrap, or Landlock and namespaces) and makes commands that are held: they see the host's
// libraries and one folder, write nowhere but there, start no other program than they were given, have no network unless
// it was given to them, and end with all they started.
//
// What cannot be set from outside is set by the program itself before it becomes the other one: a command begins as the
// helper, which is this executable once more, and whose main begins with [RunHelper].
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

// SearchPath is where programs are looked for.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// HelperVariable is the environment variable that tells the helper what to become; see [RunHelper].
const HelperVariable = "STOA_SANDBOX_PROGRAM"

// Program is one to be run.
type Program struct {
	File   string   // absolute, without symbolic links
	Args   []string // its arguments, beginning with the name it is called by
	Env    []string // its whole environment, NAME=value
	Folder string   // where it runs, and all that it can write: absolute, without symbolic links

	Others  []string      // files of further programs that it may start
	Any     bool          // it may start every program it sees
	Read    []string      // files and folders of the host that it may read besides the system's
	Network bool          // it has the host's network
	CPU     time.Duration // processor time of each of its processes, unlimited if zero

	// Untrusted says that a tenant has chosen it: where the server is root it runs as another user, and of a script only an
	// interpreter that every program may read runs. Its File must be a program that tenants may run: one in the system's
	// folders, in Root or in a folder of [Options.ProgramFolders]. What a program is shown it can read, so that Others that are not
	// are left out.
	Untrusted bool
	Root      string // the folder of the host that the tenant was granted, "" = Folder alone
	// Pinned is what Folder must still be when the program starts; nil = whatever lies there then.
	Pinned fs.FileInfo `json:"-"`
}

// Options complete a [Host]. The zero value works.
type Options struct {
	// User is the name or number of the user that untrusted programs run as where the server is root, "nobody" if empty.
	User string
	// ProgramFolders are folders of the host beside the system's whose programs tenants may run.
	ProgramFolders []string
	// Log is told once what there is to hold programs with; it may be nil.
	Log *slog.Logger
}

// Host is the machine as a place for programs. It is safe for concurrent use.
type Host struct {
	helper      string
	options     Options
	findBackend func() backend
}

// backend is what holds programs.
type backend struct {
	name          string
	fullIsolation bool
	bwrap         string   // path of bubblewrap, "" = not used
	namespaces    bool     // programs get namespaces of their own
	noTmp         bool     // this bubblewrap cannot bound a file system in memory, so that there is no /tmp
	user          *account // that untrusted programs run as; nil = the server's
	cgroups       cgroupFactory
	// untrustedErr says why no untrusted program can run; nil = they can.
	untrustedErr error
}

// NewHost returns the host seen through a helper: the path of an executable whose main begins with [RunHelper].
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

// DescribeIsolation names what programs are held with. Whole says that it holds a program that means harm: files, network and
// the end of all it started. The first call tries what there is and takes a moment.
func (h *Host) DescribeIsolation() (name string, full bool) {
	k := h.findBackend()
	return k.name, k.fullIsolation
}

// CheckUntrusted says why no untrusted program can run here, nil if they can: there is no sandbox that holds one that means
// harm, or the server is root and cannot start it as anybody else.
func (h *Host) CheckUntrusted() error { return h.findBackend().untrustedErr }

// NewCommand returns a command that runs p. When ctx ends, or the program does, everything that it started is killed; after
// [exec.Cmd.Wait] the caller calls [Kill], for a host whose sandbox cannot do so by itself.
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

// helperConfig is what the helper reads from [HelperVariable].
type helperConfig struct {
	Program
	Execute []string // files that may be executed
	Apart   bool     // there is a process namespace, so that a limit of processes counts these alone
	Boxed   bool     // there is a file system of its own: /tmp and /proc are harmless
	User    *account // whom the program runs as; nil = as the helper does

	Device, Inode uint64 // of the folder; 0 = any
}

func (o helperConfig) encodeVariable() (string, error) {
	const longest = 128<<10 - 64 // the kernel's bound of one variable
	text, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	if len(text) > longest {
		return "", fmt.Errorf("the arguments of a program are longer than %d bytes", longest)
	}
	return HelperVariable + "=" + string(text), nil
}
