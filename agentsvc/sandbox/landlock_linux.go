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
	read    = landlock.AccessFSReadFile | landlock.AccessFSReadDir
	execute = landlock.AccessFSExecute | read
	use     = landlock.AccessFSReadFile | landlock.AccessFSWriteFile
	// ofFile are the rights that a path has which is no folder.
	ofFile = execute&^landlock.AccessFSReadDir | use | landlock.AccessFSTruncate | landlock.AccessFSIoctlDev
)

// handled are the rights over files, the network and other processes that Landlock governs, by its version.
var handled = []landlock.RulesetAttr{
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
	return min(v, len(handled)-1)
}

// devices are what every program may use.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// libraries are the folders of [system] without those that hold programs: a dynamic linker, which must be executable,
// would start whatever it can read.
var libraries = []string{
	"/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/libexec", "/usr/share", "/usr/local/lib", "/usr/local/share",
	"/lib", "/lib32", "/lib64", "/libx32", "/nix/store",
}

// restrict holds the calling thread, and the program that it becomes, to what o allows. Without Landlock it does nothing.
func (o order) restrict() error {
	v := landlockVersion()
	if v == 0 {
		return nil
	}
	attr := handled[v]
	if o.Network {
		attr.HandledAccessNet = 0
	}
	fd, err := landlock.LandlockCreateRuleset(&attr, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for _, r := range o.rules(attr.HandledAccessFS &^ landlock.AccessFSExecute) {
		if err := allow(fd, r.rights, r.paths); err != nil {
			return err
		}
	}
	return landlock.LandlockRestrictSelf(fd, 0)
}

// rule gives rights on what lies at and below paths.
type rule struct {
	rights uint64
	paths  []string
}

// rules are what o allows, where all is every right but that to execute.
func (o order) rules(all uint64) []rule {
	rules := []rule{
		{all, []string{"."}}, // the folder, which the helper has entered
		{read, slices.Concat(libraries, etc, o.Read)},
		{execute, o.Execute},
		{use, devices},
	}
	if o.Any {
		rules = append(rules, rule{execute, slices.Concat(system, o.Read)})
	}
	if o.Boxed {
		rules = append(rules, rule{all, []string{"/tmp"}}, rule{read, []string{"/proc"}})
	}
	if o.Network {
		rules = append(rules, rule{read, names})
	}
	return rules
}

// allow adds rights on paths to the ruleset fd. A path that is not there is left out.
func allow(fd int, rights uint64, paths []string) error {
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
		rights &= ofFile
	}
	return landlock.LandlockAddPathBeneathRule(fd, &landlock.PathBeneathAttr{AllowedAccess: rights, ParentFd: at}, 0)
}
