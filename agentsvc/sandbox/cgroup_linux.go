package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// groupLimits are the bounds of all processes of one program together: values by the files of a control group (cgroup
// v2). Swap is refused, and an out-of-memory kill ends the whole program.
var groupLimits = map[string]string{
	"pids.max": strconv.Itoa(maxProcesses), "memory.max": strconv.Itoa(maxMemoryBytes), "memory.swap.max": "0", "memory.oom.group": "1",
}

// optionalGroupLimits are files that a kernel without swap or of an older version does not have.
var optionalGroupLimits = []string{"memory.swap.max", "memory.oom.group"}

// cgroupFactory makes a control group for each program. The zero value makes none.
type cgroupFactory struct {
	parent string            // folder of the parent group, "" = no groups are made
	limits map[string]string // of each group, by file
}

// cgroup is the control group of one program.
type cgroup struct {
	path string
	// folder is open until the program has ended: clone3 needs the descriptor.
	folder *os.File
	// isLeft is set when the command was waited for and other processes of the group had not ended.
	isLeft atomic.Bool
}

// Control groups of this process.
var (
	// groupCount numbers the groups, so that their names are unique.
	groupCount atomic.Int64
	// commandGroups are the groups that still exist, from *exec.Cmd to *cgroup. An entry is removed when its folder
	// is.
	commandGroups sync.Map // *exec.Cmd to *cgroup
)

// startInGroup makes a group and has cmd start in it, so that the program is bounded from its first instruction.
// Moving a running process would leave out the children that it already has.
func (c cgroupFactory) startInGroup(cmd *exec.Cmd) error {
	if c.parent == "" {
		return nil
	}
	removeEmptyGroups()
	g, err := c.makeGroup()
	if err != nil {
		return fmt.Errorf("make a control group: %w", err)
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(g.folder.Fd())
	commandGroups.Store(cmd, g)
	return nil
}

// makeGroup makes a group with the limits set. It removes the group again after an error.
func (c cgroupFactory) makeGroup() (*cgroup, error) {
	g := &cgroup{path: filepath.Join(c.parent, fmt.Sprintf("stoa-program-%d-%d", os.Getpid(), groupCount.Add(1)))}
	if err := os.Mkdir(g.path, 0o755); err != nil {
		return nil, err
	}
	err := c.writeLimits(g.path)
	if err == nil {
		g.folder, err = os.Open(g.path)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(g.path))
	}
	return g, nil
}

// writeLimits sets the limits of the group at path.
func (c cgroupFactory) writeLimits(path string) error {
	for file, value := range c.limits {
		err := writeFile(filepath.Join(path, file), value)
		if err != nil && !(errors.Is(err, os.ErrNotExist) && slices.Contains(optionalGroupLimits, file)) {
			return err
		}
	}
	return nil
}

// endGroup kills what is left in the group of cmd and removes the group. A group whose last process has not ended yet
// cannot be removed; [removeEmptyGroups] does so later.
func endGroup(cmd *exec.Cmd) {
	found, ok := commandGroups.Load(cmd)
	if !ok {
		return
	}
	g := found.(*cgroup)
	_ = writeFile(filepath.Join(g.path, "cgroup.kill"), "1")
	// Not by cmd.ProcessState, which a Wait of another goroutine may be writing.
	if cmd.Process != nil && !errors.Is(cmd.Process.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		return // the caller calls Kill again after Wait
	}
	_ = g.folder.Close()
	if err := os.Remove(g.path); err == nil || errors.Is(err, os.ErrNotExist) {
		commandGroups.Delete(cmd)
		return
	}
	g.isLeft.Store(true)
}

// removeEmptyGroups removes the groups of commands that were waited for and whose processes have ended since.
func removeEmptyGroups() {
	commandGroups.Range(func(key, value any) bool {
		if value.(*cgroup).isLeft.Load() {
			endGroup(key.(*exec.Cmd))
		}
		return true
	})
}

// findCgroups returns the factory of groups below the server's own group, if that is delegated to the server and has
// the controllers pids and memory; else the zero value.
func findCgroups() cgroupFactory {
	base, root := currentCgroup()
	if base == "" || unix.Access(base, unix.W_OK) != nil {
		return cgroupFactory{}
	}
	return prepareCgroups(base, root || isDelegated(base))
}

// prepareCgroups enables the controllers for groups below base and makes a group as a test. The kernel refuses
// controllers for the children of a group that has processes itself (the "no internal processes" rule of cgroup v2):
// if mayMove is set, the server's own processes move to a group next to those of the programs.
func prepareCgroups(base string, mayMove bool) cgroupFactory {
	c := cgroupFactory{parent: base, limits: groupLimits}
	enableControllers := func() error {
		return writeFile(filepath.Join(base, "cgroup.subtree_control"), "+pids +memory")
	}
	err := enableControllers()
	if errors.Is(err, syscall.EBUSY) && mayMove && moveProcesses(base, filepath.Join(base, "stoa-server")) == nil {
		err = enableControllers()
	}
	if err != nil {
		return cgroupFactory{}
	}
	probe, err := c.makeGroup()
	if err != nil {
		return cgroupFactory{}
	}
	_ = probe.folder.Close()
	_ = os.Remove(probe.path)
	return c
}

// moveProcesses moves all processes of one group into another, which it makes. A process that ends meanwhile is
// ignored.
func moveProcesses(from, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	list, err := os.ReadFile(filepath.Join(from, "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, pid := range strings.Fields(string(list)) {
		err := writeFile(filepath.Join(to, "cgroup.procs"), pid)
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// writeFile writes to an existing file of the kernel. It does not create it: a missing one is [os.ErrNotExist].
func writeFile(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// isDelegated reports whether systemd has delegated a group to the service's user, by its extended attribute.
func isDelegated(path string) bool {
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		value := make([]byte, 8)
		if n, err := unix.Getxattr(path, name, value); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// currentCgroup returns the folder of the process's own cgroup v2, "" if there is none, and whether it is the topmost
// that the process sees, as in a container, where nothing else uses it.
func currentCgroup() (path string, topmost bool) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", false
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(groups)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		if !ok {
			continue
		}
		for mount := range strings.Lines(string(mounts)) {
			// ID, parent, device, root, mount point, options, ... - type, source, options
			fields, kind, _ := strings.Cut(mount, " - ")
			if f := strings.Fields(fields); strings.HasPrefix(kind, "cgroup2 ") && len(f) > 4 && f[3] == "/" {
				return filepath.Join(f[4], group), group == ""
			}
		}
	}
	return "", false
}
