package sandbox

import (
	"errors"
	"fmt"
	"slices"

	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Sets of Landlock rights on a path.
const (
	readAccess    = landlock.AccessFSReadFile | landlock.AccessFSReadDir
	executeAccess = landlock.AccessFSExecute | readAccess
	deviceAccess  = landlock.AccessFSReadFile | landlock.AccessFSWriteFile
	// fileAccess are the rights that can be set on a path that is not a folder; the kernel refuses others.
	fileAccess = executeAccess&^landlock.AccessFSReadDir | deviceAccess | landlock.AccessFSTruncate | landlock.AccessFSIoctlDev
)

// handledRights are the rights over files, the network and other processes that a ruleset governs, by the version of
// Landlock's interface. A governed right is refused unless a rule allows it. The numbers are all bits that the
// version defines.
var handledRights = []landlock.RulesetAttr{
	3: {HandledAccessFS: 1<<15 - 1},
	4: {HandledAccessFS: 1<<15 - 1, HandledAccessNet: 1<<2 - 1},
	5: {HandledAccessFS: 1<<16 - 1, HandledAccessNet: 1<<2 - 1},
	6: {HandledAccessFS: 1<<16 - 1, HandledAccessNet: 1<<2 - 1, Scoped: 1<<2 - 1},
}

// landlockVersion returns the version of Landlock's interface to use, 0 if the kernel has none or one below 3: such a
// one does not govern truncation, so that files could be emptied.
func landlockVersion() int {
	v, err := landlock.LandlockGetABIVersion()
	if err != nil || v < 3 {
		return 0
	}
	return min(v, len(handledRights)-1)
}

// deviceFiles are the devices that every program may use.
var deviceFiles = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// libraryFolders are those of [systemFolders] without programs, readable for every program. Programs themselves must
// not be readable: the dynamic linker must be executable, and it starts any file that it can read.
var libraryFolders = []string{
	"/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/libexec", "/usr/share", "/usr/local/lib", "/usr/local/share",
	"/lib", "/lib32", "/lib64", "/libx32", "/nix/store",
}

// restrictPaths confines the calling thread, and the program that it becomes, to the paths of landlockRules, without
// TCP unless c.Network is set. Without Landlock it does nothing; bubblewrap's mounts then confine alone.
func (c helperConfig) restrictPaths() error {
	v := landlockVersion()
	if v == 0 {
		return nil
	}
	attr := handledRights[v]
	if c.Network {
		attr.HandledAccessNet = 0
	}
	fd, err := landlock.LandlockCreateRuleset(&attr, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for _, r := range c.landlockRules(attr.HandledAccessFS &^ landlock.AccessFSExecute) {
		if err := allowPaths(fd, r.rights, r.paths); err != nil {
			return err
		}
	}
	return landlock.LandlockRestrictSelf(fd, 0)
}

// pathRule gives rights on everything at and below paths.
type pathRule struct {
	rights uint64
	paths  []string
}

// landlockRules returns the rules for o. all is every governed right but to execute: even in its own folder a program
// executes only what c.Execute lists.
func (c helperConfig) landlockRules(all uint64) []pathRule {
	rules := []pathRule{
		{all, []string{"."}}, // the folder, which enterFolder has entered and checked
		{readAccess, slices.Concat(libraryFolders, settingsFiles, c.Read)},
		{executeAccess, c.Execute},
		{deviceAccess, deviceFiles},
	}
	if c.Any {
		rules = append(rules, pathRule{executeAccess, slices.Concat(systemFolders, c.Read)})
	}
	if c.Boxed {
		rules = append(rules, pathRule{all, []string{"/tmp"}}, pathRule{readAccess, []string{"/proc"}})
	}
	if c.Network {
		rules = append(rules, pathRule{readAccess, networkFiles})
	}
	return rules
}

// allowPaths adds rights on paths to the ruleset fd. Missing paths are skipped.
func allowPaths(fd int, rights uint64, paths []string) error {
	for _, path := range paths {
		if err := allowPath(fd, rights, path); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// allowPath adds rights on one path to the ruleset fd. O_PATH opens it without reading, so that no permission is
// needed.
func allowPath(fd int, rights uint64, path string) error {
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(at) }()
	var info unix.Stat_t
	if err := unix.Fstat(at, &info); err != nil {
		return err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileAccess
	}
	return landlock.LandlockAddPathBeneathRule(fd, &landlock.PathBeneathAttr{AllowedAccess: rights, ParentFd: at}, 0)
}
