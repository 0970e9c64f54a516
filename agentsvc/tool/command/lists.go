package command

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/sandbox"
)

// dangerousPrograms are programs that by design run other programs or the code they are given. Permitting one of them
// permits everything that the sandbox does. They run only if the list of allowed programs names them. A version after
// the name, as in python3.12, is ignored (matchingNames).
var dangerousPrograms = []string{
	"sh", "ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "rbash", "tcsh", "zsh", "busybox", "toybox", // shells
	"bun", "deno", "erl", "expect", "ghc", "go", "groovy", "guile", "java", "julia", "lua", "luajit", "node", "nodejs", "ocaml",
	"perl", "php", "psql", "pypy", "python", "R", "Rscript", "ruby", "scala", "sqlite", "tclsh", "wish", // languages
	"awk", "gawk", "mawk", "nawk", "original-awk", "sed", "m4", "bc", "dc", "ed", "ex", "emacs", "less", "man", "more", "nano",
	"nvim", "pico", "rvim", "vi", "view", "vim", "vimdiff", // filters, editors and pagers that run commands
	"env", "find", "fd", "fdfind", "xargs", "parallel", "tar", "cpio", "zip", "unzip", "rsync", "sort", "split", "git", "hg",
	"svn", "make", "cmake", "ninja", "cargo", "gcc", "g++", "cc", "clang", "ld", "npm", "npx", "pip", "pipx", "yarn", "pnpm",
	"uv", "uvx", "gem", "bundle", "rake", "mvn", "gradle", "apt", "apt-get", "dpkg", "rpm", "yum", "dnf", "apk", "snap", "flatpak",
	"chroot", "chrt", "cpulimit", "flock", "ionice", "logsave", "nice", "nohup", "numactl", "run-parts", "script", "setarch",
	"setpriv", "setsid", "stdbuf", "strace", "ltrace", "gdb", "perf", "taskset", "time", "timeout", "unbuffer", "watch", // programs that run another one
	"bwrap", "capsh", "doas", "machinectl", "nsenter", "pkexec", "runuser", "su", "sudo", "unshare", "firejail", // other users and namespaces
	"at", "batch", "crontab", "systemctl", "systemd-run", "service", "start-stop-daemon", "screen", "tmux", // at another time or in another session
	"docker", "podman", "ctr", "nerdctl", "kubectl", "helm", "ssh", "scp", "sftp", "socat", "nc", "ncat", "netcat", "telnet",
}

// multicallPrograms are single files that act as many programs, chosen by the name they are called with.
var multicallPrograms = []string{"busybox", "toybox", "coreutils"}

// program is a program file of the host.
type program struct {
	// foundPath is where it was found; only its last element may be a symbolic link.
	foundPath string
	// realPath is the file that foundPath leads to.
	realPath string
}

// locateProgram returns the program for a name or an absolute path, and whether it exists.
func locateProgram(word string) (program, bool) {
	found := sandbox.FindProgram(word)
	if found == "" {
		return program{}, false
	}
	// Resolve the folders but not the last element, which is the name that multicall programs look at.
	dir, err := filepath.EvalSymlinks(filepath.Dir(found))
	if err != nil {
		return program{}, false
	}
	p := program{foundPath: filepath.Join(dir, filepath.Base(found))}
	p.realPath, err = filepath.EvalSymlinks(found)
	return p, err == nil
}

// isSameProgram reports whether p and other run the same code: the same file and, for a multicall program, the same
// name.
func (p program) isSameProgram(other program) bool {
	// All names of a multicall program lead to one file: only the name distinguishes them.
	if slices.Contains(multicallPrograms, filepath.Base(p.realPath)) {
		return p.realPath == other.realPath && filepath.Base(p.foundPath) == filepath.Base(other.foundPath)
	}
	return p.realPath == other.realPath
}

// matchingNames returns the names by which a list may mean p: that of the link, that of the file, and both without a
// version.
func (p program) matchingNames() []string {
	names := []string{filepath.Base(p.foundPath)}
	if base := filepath.Base(p.realPath); !slices.Contains(multicallPrograms, base) {
		names = append(names, base)
	}
	for _, name := range names {
		// python3.12 is matched by an entry for python.
		if plain := strings.TrimRight(name, "-.0123456789"); plain != "" {
			names = append(names, plain)
		}
	}
	return names
}

// isListed reports whether an entry of list means p: by one of its names, or by a path or name that leads to the same
// program.
func (p program) isListed(list []string) bool {
	return slices.ContainsFunc(list, func(entry string) bool {
		if slices.Contains(p.matchingNames(), entry) {
			return true
		}
		other, ok := locateProgram(entry)
		return ok && p.isSameProgram(other)
	})
}

// isDynamicLinker reports whether p is a dynamic linker, which runs any program file given as an argument and would
// bypass the lists.
func (p program) isDynamicLinker() bool {
	base := filepath.Base(p.realPath)
	return strings.HasPrefix(base, "ld-") && strings.Contains(base, ".so") || strings.HasPrefix(base, "ld.so")
}

// programLists decide which programs may run.
type programLists struct {
	allowed, denied []string
	denyByDefault   bool
}

// newProgramLists returns the lists of opts, or an error with [agentsvc.CodeInvalid] for an entry that is neither a
// name nor a path.
func newProgramLists(opts Options) (programLists, error) {
	for field, list := range map[string][]string{"allowed_commands": opts.Allowed, "denied_commands": opts.Denied} {
		for _, entry := range list {
			if entry == "" || strings.ContainsAny(entry, " \t\n") || strings.Contains(entry, "/") && !filepath.IsAbs(entry) {
				return programLists{}, agentsvc.NewInvalidError(field, "%q is neither the name of a program nor an absolute path", entry)
			}
		}
	}
	return programLists{allowed: opts.Allowed, denied: opts.Denied, denyByDefault: opts.DenyByDefault || len(opts.Allowed) > 0}, nil
}

// errNoProgram reports that a program does not exist on the host.
var errNoProgram = errors.New("there is no such program")

// findProgram returns the program for word if it may run. An allowed program is the file that an entry leads to:
// another file with the same name is not allowed by it. The errors name what the model may use.
func (l programLists) findProgram(word, folder string) (program, error) {
	if strings.Contains(word, "/") && !filepath.IsAbs(word) {
		return program{}, fmt.Errorf("%q is neither the name of a program nor an absolute path", word)
	}
	p, ok := locateProgram(word)
	allowed := ok && slices.ContainsFunc(l.allowed, func(entry string) bool {
		other, found := locateProgram(entry)
		return found && p.isSameProgram(other)
	})
	switch {
	case ok && p.isListed(l.denied):
		return program{}, fmt.Errorf("%s is not allowed to run: denied_commands names it", word)
	case ok && !allowed && (p.isListed(dangerousPrograms) || p.isDynamicLinker()):
		return program{}, fmt.Errorf("%s is not allowed to run: it can run other programs or code, so allowed_commands would have to name it", word)
	case l.denyByDefault && !allowed && len(l.allowed) == 0:
		return program{}, fmt.Errorf("%s is not allowed to run; no program is", word)
	case l.denyByDefault && !allowed:
		return program{}, fmt.Errorf("%s is not allowed to run; these are: %s", word, strings.Join(l.allowed, ", "))
	case !ok:
		return program{}, fmt.Errorf("%s: %w", word, errNoProgram)
	// A program could write a file into the folder and run it in a later call.
	case !allowed && strings.HasPrefix(p.realPath, folder+"/"):
		return program{}, fmt.Errorf("%s lies in the working directory, whose files do not run", word)
	}
	return p, nil
}

// allowedFiles returns the files that a program may start itself: the allowed ones.
func (l programLists) allowedFiles() []string {
	var files []string
	for _, entry := range l.allowed {
		if p, ok := locateProgram(entry); ok && !p.isListed(l.denied) {
			files = append(files, p.realPath)
		}
	}
	return files
}
