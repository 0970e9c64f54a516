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

// dangerous are programs that run what they are told to, or other programs, by design: whoever may call one of them may
// do anything that the sandbox lets happen. They run only where the list of allowed programs names them. A version
// behind a name, as in python3.12, does not matter.
var dangerous = []string{
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

// multicall are programs that are many: which one, they see from the name they are called by.
var multicall = []string{"busybox", "toybox", "coreutils"}

// program is one of the host.
type program struct {
	called string // the path it was found at: only its last part may be a symbolic link
	file   string // what that leads to
}

// locate returns the program of a name or absolute path.
func locate(word string) (program, bool) {
	found := sandbox.Find(word)
	if found == "" {
		return program{}, false
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(found))
	if err != nil {
		return program{}, false
	}
	p := program{called: filepath.Join(dir, filepath.Base(found))}
	p.file, err = filepath.EvalSymlinks(found)
	return p, err == nil
}

// is reports whether p and other are the same program.
func (p program) is(other program) bool {
	if slices.Contains(multicall, filepath.Base(p.file)) {
		return p.file == other.file && filepath.Base(p.called) == filepath.Base(other.called)
	}
	return p.file == other.file
}

// names are what p may be called.
func (p program) names() []string {
	names := []string{filepath.Base(p.called)}
	if base := filepath.Base(p.file); !slices.Contains(multicall, base) {
		names = append(names, base)
	}
	for _, name := range names {
		if plain := strings.TrimRight(name, "-.0123456789"); plain != "" {
			names = append(names, plain)
		}
	}
	return names
}

// on reports whether an entry of list means p: its path, its name, or the name or path of the same program.
func (p program) on(list []string) bool {
	return slices.ContainsFunc(list, func(entry string) bool {
		if slices.Contains(p.names(), entry) {
			return true
		}
		other, ok := locate(entry)
		return ok && p.is(other)
	})
}

// isLinker reports whether p starts programs that it is given as a file.
func (p program) isLinker() bool {
	base := filepath.Base(p.file)
	return strings.HasPrefix(base, "ld-") && strings.Contains(base, ".so") || strings.HasPrefix(base, "ld.so")
}

// lists say which programs may run.
type lists struct {
	allowed, denied []string
	closed          bool
}

func newLists(opts Options) (lists, error) {
	for field, list := range map[string][]string{"allowed_commands": opts.Allowed, "denied_commands": opts.Denied} {
		for _, entry := range list {
			if entry == "" || strings.ContainsAny(entry, " \t\n") || strings.Contains(entry, "/") && !filepath.IsAbs(entry) {
				return lists{}, agentsvc.Invalid(field, "%q is neither the name of a program nor an absolute path", entry)
			}
		}
	}
	return lists{allowed: opts.Allowed, denied: opts.Denied, closed: opts.DenyByDefault || len(opts.Allowed) > 0}, nil
}

var errNoProgram = errors.New("there is no such program")

// find returns the program that word means if it may run. An allowed program is the one that an entry leads to: a file
// that only has its name is another.
func (l lists) find(word, folder string) (program, error) {
	if strings.Contains(word, "/") && !filepath.IsAbs(word) {
		return program{}, fmt.Errorf("%q is neither the name of a program nor an absolute path", word)
	}
	p, ok := locate(word)
	allowed := ok && slices.ContainsFunc(l.allowed, func(entry string) bool {
		other, found := locate(entry)
		return found && p.is(other)
	})
	switch {
	case ok && p.on(l.denied), ok && !allowed && (p.on(dangerous) || p.isLinker()):
		return program{}, fmt.Errorf("%s is not allowed to run", word)
	case l.closed && !allowed && len(l.allowed) == 0:
		return program{}, fmt.Errorf("%s is not allowed to run; no program is", word)
	case l.closed && !allowed:
		return program{}, fmt.Errorf("%s is not allowed to run; these are: %s", word, strings.Join(l.allowed, ", "))
	case !ok:
		return program{}, fmt.Errorf("%s: %w", word, errNoProgram)
	case !allowed && strings.HasPrefix(p.file, folder+"/"):
		return program{}, fmt.Errorf("%s lies in the working directory, whose files do not run", word)
	}
	return p, nil
}

// others are the programs that a program may start: those that may be called as well.
func (l lists) others() []string {
	var files []string
	for _, entry := range l.allowed {
		if p, ok := locate(entry); ok && !p.on(l.denied) {
			files = append(files, p.file)
		}
	}
	return files
}
