package sandbox

import (
	"errors"
	"fmt"
	"slices"

	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// What a program may do to a path.
const (
	readAccess    = landlock.AccessFSReadFile | landlock.AccessFSReadDir
	executeAccess = landlock.AccessFSExecute | readAccess
	deviceAccess  = landlock.AccessFSReadFile | landlock.AccessFSWriteFile
	// fileAccess are the rights that a path has which is no folder.
	fileAccess = executeAccess&^landlock.AccessFSReadDir | deviceAccess | landlock.AccessFSTruncate | landlock.AccessFSIoctlDev
)

// handledRights are the rights over files, the network and other processes that Landlock governs, by its version.
var handledRights = []landlock.RulesetAttr{
	3: {HandledAccessFS: 1<<15 - 1},
	4: {HandledAccessFS: 1<<15 - 1, HandledAccessNet: 1<<2 - 1},
	5: {HandledAccessFS: 1<<16 - 1, HandledAccessNet: 1<<2 - 1},
	6: {HandledAccessFS: 1<<16 - 1, HandledAccessNet: 1<<2 - 1, Scoped: 1<<2 - 1},
}

// landlockVersion is the version that is used, or 0 if the kernel has none that governs all that can be done to a file.
func landlockVersion() int {
	v, err := landlock.LandlockGetABIVersion()
	if err != nil || v < 3 {
		return 0
	}
	return min(v, len(handledRights)-1)
}

// deviceFiles are what every program may use.
var deviceFiles = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// libraryFolders are the folders of [systemFolders] without those that hold programs: a dynamic linker, which must be executable,
// would start whatever it can read.
var libraryFolders = []string{
	"/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/libexec", "/usr/share", "/usr/local/lib", "/usr/local/share",
	"/lib", "/lib32", "/lib64", "/libx32", "/nix/store",
}

// restrictPaths holds the calling thread, and the program that it becomes, to what o allows. Without Landlock it does nothing.
func (o helperConfig) restrictPaths() error {
	v := landlockVersion()
	if v == 0 {
		return nil
	}
	attr := handledRights[v]
	if o.Network {
		attr.HandledAccessNet = 0
	}
	fd, err := landlock.LandlockCreateRuleset(&attr, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for _, r := range o.landlockRules(attr.HandledAccessFS &^ landlock.AccessFSExecute) {
		if err := allowPaths(fd, r.rights, r.paths); err != nil {
			return err
		}
	}
	return landlock.LandlockRestrictSelf(fd, 0)
}

// pathRule gives rights on what lies at and below paths.
type pathRule struct {
	rights uint64
	paths  []string
}

// landlockRules are what o allows, where all is every right but that to execute.
func (o helperConfig) landlockRules(all uint64) []pathRule {
	rules := []pathRule{
		{all, []string{"."}}, // the folder, which the helper has entered
		{readAccess, slices.Concat(libraryFolders, settingsFiles, o.Read)},
		{executeAccess, o.Execute},
		{deviceAccess, deviceFiles},
	}
	if o.Any {
		rules = append(rules, pathRule{executeAccess, slices.Concat(systemFolders, o.Read)})
	}
	if o.Boxed {
		rules = append(rules, pathRule{all, []string{"/tmp"}}, pathRule{readAccess, []string{"/proc"}})
	}
	if o.Network {
		rules = append(rules, pathRule{readAccess, networkFiles})
	}
	return rules
}

// allowPaths adds rights on paths to the ruleset fd. A path that is not there is left out.
func allowPaths(fd int, rights uint64, paths []string) error {
	for _, path := range paths {
		if err := allowPath(fd, rights, path); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

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
