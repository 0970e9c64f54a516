// Package sandbox is the only way from an agent to a program of this host. A [Host] finds out what the machine offers to
// hold a program with (bubblewrap, or Landlock and namespaces) and makes commands that are held: they see the host's
// libraries and one folder, write nowhere but there, start no other program than they were given, have no network unless
// it was given to them, and end with all they started.
//
// What cannot be set from outside is set by the program itself before it becomes the other one: a command begins as the
// helper, which is this executable once more, and whose main begins with [Enter].
package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// Path is where programs are looked for.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Variable is the environment variable that tells the helper what to become; see [Enter].
const Variable = "STOA_SANDBOX_PROGRAM"

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
}

// Host is the machine as a place for programs. It is safe for concurrent use.
type Host struct {
	helper string
	find   func() holder
}

// holder is what holds programs.
type holder struct {
	name  string
	whole bool
	bwrap string // path of bubblewrap, "" = not used
	apart bool   // programs get namespaces of their own
}

// NewHost returns the host seen through a helper: the path of an executable whose main begins with [Enter].
func NewHost(helper string) *Host {
	h := &Host{helper: helper}
	h.find = sync.OnceValue(h.probe)
	return h
}

// Sandbox names what programs are held with. Whole says that it holds a program that means harm: files, network and
// the end of all it started. The first call tries what there is and takes a moment.
func (h *Host) Sandbox() (name string, whole bool) {
	k := h.find()
	return k.name, k.whole
}

// Command returns a command that runs p. When ctx ends, or the program does, everything that it started is killed; after
// [exec.Cmd.Wait] the caller calls [Kill], for a host whose sandbox cannot do so by itself.
func (h *Host) Command(ctx context.Context, p Program) (*exec.Cmd, error) {
	if !filepath.IsAbs(p.File) || !filepath.IsAbs(p.Folder) {
		return nil, fmt.Errorf("the program %q and its folder %q must be absolute paths", p.File, p.Folder)
	}
	return h.command(ctx, h.find(), p)
}

// order is what the helper reads from [Variable].
type order struct {
	Program
	Execute []string // files that may be executed
	Apart   bool     // there is a process namespace, so that a limit of processes counts these alone
	Boxed   bool     // there is a file system of its own: /tmp and /proc are harmless
}

func (o order) encode() (string, error) {
	const longest = 128<<10 - 64 // the kernel's bound of one variable
	text, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	if len(text) > longest {
		return "", fmt.Errorf("the arguments of a program are longer than %d bytes", longest)
	}
	return Variable + "=" + string(text), nil
}
