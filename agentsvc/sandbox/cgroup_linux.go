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

// groupLimits are the bounds of all processes of one program together, by the files of a control group (version 2).
var groupLimits = map[string]string{
	"pids.max": strconv.Itoa(maxProcesses), "memory.max": strconv.Itoa(maxMemoryBytes), "memory.swap.max": "0", "memory.oom.group": "1",
}

// optionalGroupLimits are files that kernels may lack.
var optionalGroupLimits = []string{"memory.swap.max", "memory.oom.group"}

// cgroupFactory makes a control group for each program. The zero value makes none.
type cgroupFactory struct {
	parent string            // folder of the group that they are made in, "" = none are made
	limits map[string]string // of each, by file
}

// cgroup is that of one program.
type cgroup struct {
	path   string
	folder *os.File // open until the program has ended
}

var (
	groupCount atomic.Int64
	// commandGroups are the groups of commands whose processes have not all gone yet.
	commandGroups sync.Map // *exec.Cmd to *cgroup
)

// startInGroup has cmd start in a group of its own.
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

func (c cgroupFactory) makeGroup() (*cgroup, error) {
	g := &cgroup{path: filepath.Join(c.parent, fmt.Sprintf("stoa-program-%d-%d", os.Getpid(), groupCount.Add(1)))}
	if err := os.Mkdir(g.path, 0o755); err != nil {
		return nil, err
	}
	for file, value := range c.limits {
		err := writeFile(filepath.Join(g.path, file), value)
		if err != nil && !(errors.Is(err, os.ErrNotExist) && slices.Contains(optionalGroupLimits, file)) {
			return nil, errors.Join(err, os.Remove(g.path))
		}
	}
	var err error
	if g.folder, err = os.Open(g.path); err != nil {
		return nil, errors.Join(err, os.Remove(g.path))
	}
	return g, nil
}

// endGroup kills what is left in the group of cmd and removes it. A group whose last process is still ending stays for
// [removeEmptyGroups].
func endGroup(cmd *exec.Cmd) {
	found, ok := commandGroups.Load(cmd)
	if !ok {
		return
	}
	g := found.(*cgroup)
	_ = writeFile(filepath.Join(g.path, "cgroup.kill"), "1")
	if cmd.Process != nil && cmd.ProcessState == nil {
		return // Wait comes yet, and Kill again
	}
	_ = g.folder.Close()
	if err := os.Remove(g.path); err == nil || errors.Is(err, os.ErrNotExist) {
		commandGroups.Delete(cmd)
	}
}

// removeEmptyGroups removes the groups whose commands were waited for and whose processes have gone since.
func removeEmptyGroups() {
	commandGroups.Range(func(key, _ any) bool {
		if cmd := key.(*exec.Cmd); cmd.ProcessState != nil {
			endGroup(cmd)
		}
		return true
	})
}

// findCgroups returns where groups of programs can be made: below the server's own group, if that is delegated to it and
// knows the controllers of processes and memory. The zero value says that there is no such place.
func findCgroups() cgroupFactory {
	base, root := currentCgroup()
	if base == "" || unix.Access(base, unix.W_OK) != nil {
		return cgroupFactory{}
	}
	return prepareCgroups(base, root || isDelegated(base))
}

// prepareCgroups makes groups possible below the one at own. A group with controllers for its children must have no processes:
// where that stands in the way and mayMove is set, the server's own move to a group beside those of programs.
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

// moveProcesses moves all processes of one group into another, which it makes.
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

// writeFile writes to a file of the kernel. One that is not there is [os.ErrNotExist], and is not made.
func writeFile(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// isDelegated reports whether systemd has marked a group as its user's to divide.
func isDelegated(path string) bool {
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		value := make([]byte, 8)
		if n, err := unix.Getxattr(path, name, value); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// currentCgroup returns the folder of the process's own group of version 2, "" if there is none, and whether it is the topmost
// that the process sees, as in a container.
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
