package command_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/sandbox"
	"stoa/agentsvc/tool"
	"stoa/agentsvc/tool/command"
)

func TestMain(m *testing.M) {
	sandbox.RunHelper(os.Getenv(sandbox.HelperVariable))
	goleak.VerifyTestMain(m)
}

func newHost(t *testing.T) *sandbox.Host {
	t.Helper()
	helper, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := sandbox.NewHost(helper, sandbox.Options{})
	if name, complete := h.DescribeIsolation(); !complete {
		t.Skipf("NOTHING IS PROVED HERE: this machine's sandbox is %s", name)
	}
	return h
}

// newTool returns a tool in a folder with a file of two lines and a link that leads out of it.
func newTool(t *testing.T, opts command.Options) *command.Tool {
	t.Helper()
	opts.Name = "shell"
	if opts.Folder == "" {
		opts.Folder = t.TempDir()
	}
	outside := t.TempDir()
	for file, text := range map[string]string{filepath.Join(opts.Folder, "notes.txt"): "one\ntwo words\n", filepath.Join(outside, "secret"): "a secret"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(opts.Folder, "out")); err != nil {
		t.Fatal(err)
	}
	c, err := command.New(newHost(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// runCommand runs a command as an agent does, through a set.
func runCommand(t *testing.T, c *command.Tool, line string, args ...string) agentsvc.ToolResult {
	t.Helper()
	s, err := tool.NewSet([]tool.Tool{c}, tool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"command": line, "args": append([]string{}, args...)})
	if err != nil {
		t.Fatal(err)
	}
	res, _ := s.Call(t.Context(), agentsvc.RunScope{}, agentsvc.ToolCall{Name: "shell", Arguments: text}, "s")
	return res
}

func TestCall(t *testing.T) {
	t.Parallel()
	c := newTool(t, command.Options{Allowed: []string{"ls", "cat", "grep", "echo", "touch", "env", "pwd", "sh"}})
	tests := []struct {
		name, line string
		args       []string
		want       string
		failed     bool
	}{
		{"a program", "cat notes.txt", nil, "exit code 0\none\ntwo words\n", false},
		{"quotes", "grep -n 'two words' notes.txt", nil, "exit code 0\n2:two words\n", false},
		{"arguments", "grep", []string{"two words", "notes.txt"}, "exit code 0\ntwo words\n", false},
		{"both", "grep -c", []string{"o", "notes.txt"}, "exit code 0\n2\n", false},
		{"an absolute path", "/bin/cat notes.txt", nil, "exit code 0\none\ntwo words\n", false},
		{"nothing printed", "touch new.txt", nil, "exit code 0\n", false},
		{"no match", "grep missing notes.txt", nil, "shell: exit code 1\n", true},
		{"an error", "cat missing", nil, "shell: exit code 1\n[stderr]\ncat: missing: No such file or directory\n", true},
		{"both streams", "sh -c", []string{"echo out; echo err >&2; exit 3"}, "shell: exit code 3\nout\n[stderr]\nerr\n", true},
		{"a signal", "sh -c", []string{"kill -9 $$"}, "shell: ", true},

		{"literal arguments", "echo", []string{"; id", "$(id)", "`id`", "*", "$HOME", "a\nb", ">x", "| id", ""}, "exit code 0\n; id $(id) `id` * $HOME a\nb >x | id \n", false},
		{"literal in quotes", `echo "; id" '$(id)' "a\"b" '*' *`, nil, "exit code 0\n; id $(id) a\"b * *\n", false},
		{"a list", "ls; id", nil, `';' needs a shell`, true},
		{"a substitution", "echo $(id)", nil, `'$' needs a shell`, true},
		{"backticks", "echo `id`", nil, "'`' needs a shell", true},
		{"a line", "ls\nid", nil, `'\n' needs a shell`, true},
		{"a pipe", "ls | id", nil, `'|' needs a shell`, true},
		{"a redirection", "ls >x", nil, `'>' needs a shell`, true},
		{"an open quote", "echo 'x", nil, "the quote ' is not closed", true},
		{"a program with an argument in it", "", []string{"ls; id"}, "ls; id is not allowed to run; these are: ls, cat", true},
		{"nothing", " ", nil, "command names no program", true},
		{"NUL", "echo", []string{"a\x00b"}, "an argument holds a NUL character", true},
		{"many", "echo", make([]string, 300), "more than 256 arguments", true},
		{"long", "echo", []string{strings.Repeat("x", 70_000)}, "the arguments are longer than 65536 bytes", true},

		{"not on the list", "id", nil, "id is not allowed to run; these are: ls, cat", true},
		{"no such program", "missing", nil, "missing is not allowed to run", true},
		{"relative", "./notes.txt", nil, "neither the name of a program nor an absolute path", true},
		{"starts another", "env id", nil, "exit code 126\n[stderr]\nenv: ", true},
		{"a shell starts another", "sh -c", []string{"id || /usr/bin/id"}, "exit code 126\n[stderr]\n", true},
		{"starts one on the list", "env echo hi", nil, "exit code 0\nhi\n", false},
		{"the way out", "cat out/secret", nil, "exit code 1\n[stderr]\ncat: out/secret: ", true},
		{"the parent", "cat ../../../../../../etc/passwd", nil, "exit code 1\n[stderr]\ncat: ", true},
		{"the host", "touch /usr/x", nil, "exit code 1\n[stderr]\ntouch: ", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := runCommand(t, c, tt.line, tt.args...)
			exact := !tt.failed || strings.HasSuffix(tt.want, "\n") && strings.HasPrefix(tt.want, "shell: exit") && len(tt.want) > 40
			if got.Failed != tt.failed || !strings.Contains(got.Text, tt.want) || exact && got.Text != tt.want {
				t.Errorf("got %q, failed %v; want %q, %v", got.Text, got.Failed, tt.want, tt.failed)
			}
			if strings.Contains(got.Text, "uid=") || strings.Contains(got.Text, "a secret") || strings.Contains(got.Text, "root:") {
				t.Errorf("something ran or was read that must not: %q", got.Text)
			}
		})
	}
}

// TestDangerous checks that permitted programs cannot be made to start others by their arguments.
func TestDangerous(t *testing.T) {
	t.Parallel()
	c := newTool(t, command.Options{Allowed: []string{"find", "git", "tar", "xargs", "awk", "timeout"}})
	calls := [][]string{
		{"find", ".", "-maxdepth", "0", "-exec", "/usr/bin/id", ";"},
		{"find", ".", "-maxdepth", "0", "-execdir", "id", ";"},
		{"git", "-c", "alias.x=!id", "x"},
		{"git", "-c", "core.pager=id", "-p", "help", "-a"},
		{"tar", "-cf", "x.tar", "--checkpoint=1", "--checkpoint-action=exec=id", "notes.txt"},
		{"tar", "-cf", "y.tar", "-I", "id", "notes.txt"},
		{"tar", "-xf", "x.tar", "--to-command=id"},
		{"xargs", "-a", "notes.txt", "id"},
		{"awk", `BEGIN { system("id") }`},
		{"timeout", "9", "id"},
	}
	for _, words := range calls {
		if sandbox.FindProgram(words[0]) == "" {
			t.Logf("there is no %s here", words[0])
			continue
		}
		if got := runCommand(t, c, words[0], words[1:]...); strings.Contains(got.Text, "uid=") || strings.Contains(got.Text, "not allowed to run") {
			t.Errorf("%q: %s", words, got.Text)
		}
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for link, target := range map[string]string{"hidden": "/bin/sh", "cat": "/usr/bin/id"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	mine := filepath.Join(dir, "mine")
	if err := os.WriteFile(mine, []byte("#!/bin/sh\necho mine\n"), 0o755); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	interpreter := sandbox.FindProgram("perl")
	tests := []struct {
		name string
		opts command.Options
		word string
		ok   bool
	}{
		{"open", command.Options{}, "id", true},
		{"open, by path", command.Options{}, "/usr/bin/id", true},
		{"open, dangerous", command.Options{}, "env", false},
		{"open, find", command.Options{}, "find", false},
		{"open, tar", command.Options{}, "tar", false},
		{"open, git", command.Options{}, "git", false},
		{"open, xargs", command.Options{}, "xargs", false},
		{"open, a shell", command.Options{}, "sh", false},
		{"open, a shell by path", command.Options{}, "/bin/bash", false},
		{"open, a language", command.Options{}, interpreter, false},
		{"open, a shell behind a link", command.Options{}, filepath.Join(dir, "hidden"), false},
		{"open, the linker", command.Options{}, "/lib64/ld-linux-x86-64.so.2", false},
		{"open, in the folder", command.Options{Folder: dir}, mine, false},
		{"denied", command.Options{Denied: []string{"id"}}, "id", false},
		{"denied, by path", command.Options{Denied: []string{"id"}}, "/usr/bin/id", false},
		{"denied by path", command.Options{Denied: []string{"/bin/id"}}, "id", false},
		{"denied behind a link", command.Options{Denied: []string{"id"}}, filepath.Join(dir, "cat"), false},
		{"another is denied", command.Options{Denied: []string{"id"}}, "true", true},
		{"allowed", command.Options{Allowed: []string{"id"}}, "id", true},
		{"allowed by path", command.Options{Allowed: []string{"/bin/id"}}, "id", true},
		{"allowed and dangerous", command.Options{Allowed: []string{"env"}}, "env", true},
		{"allowed and denied", command.Options{Allowed: []string{"id"}, Denied: []string{"id"}}, "id", false},
		{"another is allowed", command.Options{Allowed: []string{"id"}}, "true", false},
		{"a file of an allowed name", command.Options{Allowed: []string{"cat"}}, filepath.Join(dir, "cat"), false},
		{"allowed in the folder", command.Options{Folder: dir, Allowed: []string{mine, "sh"}}, mine, true},
		{"closed", command.Options{DenyByDefault: true}, "true", false},
		{"closed, allowed", command.Options{DenyByDefault: true, Allowed: []string{"true"}}, "true", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			opts := tt.opts
			opts.Name = "shell"
			if opts.Folder == "" {
				opts.Folder = t.TempDir()
			}
			c, err := command.New(newHost(t), opts)
			if err != nil {
				t.Fatal(err)
			}
			if sandbox.FindProgram(tt.word) == "" {
				t.Fatalf("the test runs %s, which is not here", tt.word)
			}
			got := runCommand(t, c, tt.word)
			if refused := strings.Contains(got.Text, "not allowed to run") || strings.Contains(got.Text, "do not run"); refused == tt.ok || tt.ok && got.Failed {
				t.Errorf("%q, want it to run: %v", got.Text, tt.ok)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]command.Options{
		"working_directory: /missing is no folder":                                 {Folder: "/missing"},
		"working_directory: /etc/passwd is no folder":                              {Folder: "/etc/passwd"},
		"working_directory: is the whole file system":                              {Folder: "/"},
		`allowed_commands: "git log" is neither the name of a program nor an`:      {Folder: ".", Allowed: []string{"git log"}},
		`denied_commands: "bin/git" is neither the name of a program nor an absol`: {Folder: ".", Denied: []string{"bin/git"}},
	} {
		if _, err := command.New(newHost(t), opts); !errors.Is(err, agentsvc.CodeInvalid) || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%v, want %s", err, name)
		}
	}
}

func TestOutput(t *testing.T) {
	t.Parallel()
	c := newTool(t, command.Options{Allowed: []string{"head", "bash", "yes"}, MaxOutput: 1000})
	if got := runCommand(t, c, "head -c 5000 /dev/zero"); got.Failed || !strings.HasSuffix(got.Text, "\n[cut here: these are the first 1000 of 5000 bytes]\n") || len(got.Text) > 3200 {
		t.Errorf("%d bytes, failed %v: ...%q", len(got.Text), got.Failed, got.Text[max(0, len(got.Text)-100):])
	}
	start := time.Now()
	got := runCommand(t, c, "head -c 1G /dev/zero")
	if !got.Failed || !strings.HasPrefix(got.Text, "shell: stopped because it printed more than 64000 bytes") || len(got.Text) > 4000 || time.Since(start) > 5*time.Second {
		t.Errorf("1 GiB: %d bytes after %v, %.100q", len(got.Text), time.Since(start), got.Text)
	}
}

// TestTime checks that a program that hangs, and one that keeps starting others, end at the timeout.
func TestTime(t *testing.T) {
	t.Parallel()
	dir := ""
	for _, script := range []string{
		"trap '' TERM INT HUP; echo x >>alive; echo begun; while :; do sleep 600; done",
		"echo x >>alive; echo begun; f() { echo x >>alive; sleep 0.05; f & wait; }; f",
	} {
		for _, timeout := range []time.Duration{500 * time.Millisecond, 4 * time.Second, 16 * time.Second} {
			dir = t.TempDir()
			c := newTool(t, command.Options{Folder: dir, Allowed: []string{"bash", "sleep"}, Timeout: timeout})
			start := time.Now()
			got := runCommand(t, c, "bash -c", script)
			if took := time.Since(start); !got.Failed || !strings.HasPrefix(got.Text, "shell: stopped after "+timeout.String()+"\n") || took > timeout+10*time.Second {
				t.Errorf("after %v: %.200q", took, got.Text)
			}
			if strings.HasSuffix(got.Text, "\nbegun\n") {
				break
			}
			if timeout > 10*time.Second { // a busy machine may be slow to begin
				t.Errorf("nothing began: %.200q", got.Text)
			}
		}
	}
	for start, before := time.Now(), []byte(nil); ; time.Sleep(300 * time.Millisecond) {
		after, err := os.ReadFile(filepath.Join(dir, "alive"))
		if err != nil {
			t.Fatal(err)
		}
		if len(after) == len(before) {
			break
		}
		if before = after; time.Since(start) > 20*time.Second {
			t.Fatal("something goes on")
		}
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	c := newTool(t, command.Options{Allowed: []string{"sleep"}})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	start := time.Now()
	if _, err := c.Call(ctx, tool.Call{Arguments: json.RawMessage(`{"command":"sleep 600"}`)}); !errors.Is(err, context.Canceled) || time.Since(start) > 20*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

func TestSpec(t *testing.T) {
	t.Parallel()
	if d := newTool(t, command.Options{Allowed: []string{"ls", "cat"}}).Spec().Description; !strings.HasSuffix(d, " Programs: ls, cat.") {
		t.Errorf("description %q", d)
	}
	if d := newTool(t, command.Options{Description: "Mine."}).Spec().Description; d != "Mine." {
		t.Errorf("description %q", d)
	}
	c := newTool(t, command.Options{Allowed: []string{"env"}})
	got := runCommand(t, c, "env")
	for _, want := range []string{"HOME=/", "LANG=C.UTF-8", "PATH=" + sandbox.SearchPath} {
		if !strings.Contains(got.Text, want) {
			t.Errorf("the environment lacks %s: %s", want, got.Text)
		}
	}
	if strings.Count(got.Text, "=") > 8 {
		t.Errorf("the environment is not clean: %s", got.Text)
	}
}
