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

// dangerousPrograms are programs that run what they are told to, or other programs, by design: whoever may call one of them may
// do anything that the sandbox lets happen. They run only where the list of allowed programs names them. A version
// behind a name, as in python3.12, does not matter.
var dangerousPrograms = []string{
	"sh", "ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "rbash", "tcsh", "zsh", "busybox", "toybox", // shells
	"bun", "deno", "erl", "expect", "ghc", "go", "groovy", "guile", "java", "julia", "lua", "luajit", "node", "nodejs", "ocaml",
	"perl", "php", "psql", "pypy", "python", "R", "Rscript", "ruby", "scala", "sqlite", "tclsh", "wish", // languages
	"awk", "gawk", "mawk", "nawk", "original-awk", "sed", "m4", "bc", "dc", "ed", "ex", "emacs", "less", "man", "more", "nano",
	"nvim", "pico", "rvim", "vi", "view", "vim", "vimdiff", // filters, editors and pagers with commands
	"env", "find", "fd", "fdfind", "xargs", "parallel", "tar", "cpio", "zip", "unzip", "rsync", "sort", "split", "git", "hg",
	"svn", "make", "cmake", "ninja", "cargo", "gcc", "g++", "cc", "clang", "ld", "npm", "npx", "pip", "pipx", "yarn", "pnpm",
	"uv", "uvx", "gem", "bundle", "rake", "mvn", "gradle", "apt", "apt-get", "dpkg", "rpm", "yum", "dnf", "apk", "snap", "flatpak",
	"chroot", "chrt", "cpulimit", "flock", "ionice", "logsave", "nice", "nohup", "numactl", "run-parts", "script", "setarch",
	"setpriv", "setsid", "stdbuf", "strace", "ltrace", "gdb", "perf", "taskset", "time", "timeout", "unbuffer", "watch", // runners
	"bwrap", "capsh", "doas", "machinectl", "nsenter", "pkexec", "runuser", "su", "sudo", "unshare", "firejail", // other users
	"at", "batch", "crontab", "systemctl", "systemd-run", "service", "start-stop-daemon", "screen", "tmux", // later, elsewhere
	"docker", "podman", "ctr", "nerdctl", "kubectl", "helm", "ssh", "scp", "sftp", "socat", "nc", "ncat", "netcat", "telnet",
}

// multicallPrograms are programs that are many: which one, they see from the name they are called by.
var multicallPrograms = []string{"busybox", "toybox", "coreutils"}

// program is one of the host.
type program struct {
	foundPath string // the path it was found at: only its last part may be a symbolic link
	realPath  string // what that leads to
}

// locateProgram returns the program of a name or absolute path.
func locateProgram(word string) (program, bool) {
	found := sandbox.FindProgram(word)
	if found == "" {
		return program{}, false
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(found))
	if err != nil {
		return program{}, false
	}
	p := program{foundPath: filepath.Join(dir, filepath.Base(found))}
	p.realPath, err = filepath.EvalSymlinks(found)
	return p, err == nil
}

// isSameProgram reports whether p and other are the same program.
func (p program) isSameProgram(other program) bool {
	if slices.Contains(multicallPrograms, filepath.Base(p.realPath)) {
		return p.realPath == other.realPath && filepath.Base(p.foundPath) == filepath.Base(other.foundPath)
	}
	return p.realPath == other.realPath
}

// matchingNames are what p may be called.
func (p program) matchingNames() []string {
	names := []string{filepath.Base(p.foundPath)}
	if base := filepath.Base(p.realPath); !slices.Contains(multicallPrograms, base) {
		names = append(names, base)
	}
	for _, name := range names {
		if plain := strings.TrimRight(name, "-.0123456789"); plain != "" {
			names = append(names, plain)
		}
	}
	return names
}

// isListed reports whether an entry of list means p: its path, its name, or the name or path of the same program.
func (p program) isListed(list []string) bool {
	return slices.ContainsFunc(list, func(entry string) bool {
		if slices.Contains(p.matchingNames(), entry) {
			return true
		}
		other, ok := locateProgram(entry)
		return ok && p.isSameProgram(other)
	})
}

// isDynamicLinker reports whether p starts programs that it is given as a file.
func (p program) isDynamicLinker() bool {
	base := filepath.Base(p.realPath)
	return strings.HasPrefix(base, "ld-") && strings.Contains(base, ".so") || strings.HasPrefix(base, "ld.so")
}

// programLists say which programs may run.
type programLists struct {
	allowed, denied []string
	denyByDefault   bool
}

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

var errNoProgram = errors.New("there is no such program")

// findProgram returns the program that word means if it may run. An allowed program is the one that an entry leads to: a file
// that only has its name is another.
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
	case ok && p.isListed(l.denied), ok && !allowed && (p.isListed(dangerousPrograms) || p.isDynamicLinker()):
		return program{}, fmt.Errorf("%s is not allowed to run", word)
	case l.denyByDefault && !allowed && len(l.allowed) == 0:
		return program{}, fmt.Errorf("%s is not allowed to run; no program is", word)
	case l.denyByDefault && !allowed:
		return program{}, fmt.Errorf("%s is not allowed to run; these are: %s", word, strings.Join(l.allowed, ", "))
	case !ok:
		return program{}, fmt.Errorf("%s: %w", word, errNoProgram)
	case !allowed && strings.HasPrefix(p.realPath, folder+"/"):
		return program{}, fmt.Errorf("%s lies in the working directory, whose files do not run", word)
	}
	return p, nil
}

// allowedFiles are the programs that a program may start: those that may be called as well.
func (l programLists) allowedFiles() []string {
	var files []string
	for _, entry := range l.allowed {
		if p, ok := locateProgram(entry); ok && !p.isListed(l.denied) {
			files = append(files, p.realPath)
		}
	}
	return files
}
