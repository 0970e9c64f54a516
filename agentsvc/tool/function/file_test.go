package function_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/tool/function"
	"stoa/tenancy/grant"
)

// newTestFolder creates a folder with a few files, and with links that lead out of it.
func newTestFolder(t *testing.T) string {
	t.Helper()
	dir, outside := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"notes.txt": "one\ntwo words\nthree", "empty": "", "src/a.go": "package a\n// Two Words\n", "src/deep/b.go": "package b\n", "src/data.bin": "two words\x00",
		outside + "/secret": "a secret\n",
	} {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"out": outside, "secret": outside + "/secret", "in": "notes.txt"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	dir := newTestFolder(t)
	long := filepath.Join(dir, "long.txt")
	if err := os.WriteFile(long, []byte(strings.Repeat("0123456789abcdef\n", 50_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "line.txt"), []byte(strings.Repeat("x", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newBuiltin(t, "read_file", function.Options{Folder: dir})
	tests := []struct {
		arguments, want string
		failed          bool
	}{
		{`{"path":"notes.txt"}`, "one\ntwo words\nthree", false},
		{`{"path":"./src/../notes.txt"}`, "one\ntwo words\nthree", false},
		{`{"path":"in"}`, "one\ntwo words\nthree", false},
		{`{"path":"notes.txt","from":2,"lines":1}`, "two words\n\n[lines 2 to 2 of 3]", false},
		{`{"path":"notes.txt","from":3}`, "three\n[lines 3 to 3 of 3]", false},
		{`{"path":"notes.txt","from":4}`, "read_file: notes.txt has 3 lines", true},
		{`{"path":"empty"}`, "[the file is empty]", false},
		{`{"path":"missing"}`, "read_file: there is no missing", true},
		{`{"path":"notes.txt/x"}`, "read_file: notes.txt/x: the path has a file where a folder is expected, or a folder where a file is expected", true},
		{`{"path":"src"}`, "read_file: src is a folder", true},
		{`{"path":"src/data.bin"}`, "read_file: src/data.bin is no text", true},
		{`{"path":"pipe"}`, "read_file: pipe is no regular file", true},
		{`{"path":""}`, `read_file: "" is no path in the folder; give one such as notes/today.txt`, true},
		{`{"path":"/etc/passwd"}`, `read_file: "/etc/passwd" is no path in the folder; give one such as notes/today.txt`, true},
		{`{"path":"../x"}`, `read_file: "../x" is no path in the folder; give one such as notes/today.txt`, true},
		{`{"path":"src/../../x"}`, `read_file: "src/../../x" is no path in the folder; give one such as notes/today.txt`, true},
		{`{"path":"out/secret"}`, "read_file: out/secret cannot be reached in the folder", true},
		{`{"path":"secret"}`, "read_file: secret cannot be reached in the folder", true},
	}
	for _, tt := range tests {
		t.Run(tt.arguments, func(t *testing.T) {
			t.Parallel()
			if got := callTool(t, f, tt.arguments); got.Text != tt.want || got.Failed != tt.failed {
				t.Errorf("got %q, failed %v; want %q", got.Text, got.Failed, tt.want)
			}
		})
	}
	if got := callTool(t, f, `{"path":"long.txt"}`); !strings.HasSuffix(got.Text, "\n[lines 1 to 2000 of 50000]") {
		t.Errorf("a long file: ...%q", got.Text[len(got.Text)-100:])
	}
	if got := callTool(t, f, `{"path":"long.txt","lines":40000}`); len(got.Text) > 300_000 || !strings.Contains(got.Text, "\n[cut here: lines 1 to 15421 of 50000, the last one not whole]") {
		t.Errorf("many lines: %d bytes, ...%q", len(got.Text), got.Text[len(got.Text)-100:])
	}
	if got := callTool(t, f, `{"path":"line.txt"}`); len(got.Text) > 300_000 || !strings.Contains(got.Text, "\n[cut here: lines 1 to 1 of 1, the last one not whole]") {
		t.Errorf("a long line: %d bytes, ...%q", len(got.Text), got.Text[len(got.Text)-100:])
	}
}

func TestWriteFile(t *testing.T) {
	t.Parallel()
	dir := newTestFolder(t)
	f := newBuiltin(t, "write_file", function.Options{Folder: dir})
	tests := []struct {
		path, content, want string
		failed              bool
	}{
		{"new.txt", "hello", "new.txt now has 5 bytes.", false},
		{"a/b/c.txt", "", "a/b/c.txt now has 0 bytes.", false},
		{"notes.txt", "other", "notes.txt now has 5 bytes.", false},
		{".", "x", "write_file: the folder itself cannot be written", true},
		{"src", "x", "write_file: src is no regular file, and is left as it is", true},
		{"pipe", "x", "write_file: pipe is no regular file, and is left as it is", true},
		{"secret", "x", "write_file: secret is no regular file, and is left as it is", true},
		{"out/new", "x", "write_file: out/new cannot be reached in the folder", true},
		{"out/deep/new", "x", "write_file: out/deep/new cannot be reached in the folder", true},
		{"../new", "x", `write_file: "../new" is no path in the folder; give one such as notes/today.txt`, true},
		{"empty/x", "x", "write_file: empty/x cannot be reached in the folder", true},
		{"big", strings.Repeat("x", 1<<20+1), "write_file: content is longer than 1048576 bytes", true},
	}
	for _, tt := range tests {
		args, _ := json.Marshal(map[string]string{"path": tt.path, "content": tt.content})
		if got := callTool(t, f, string(args)); got.Text != tt.want || got.Failed != tt.failed {
			t.Errorf("%s: got %q, failed %v; want %q", tt.path, got.Text, got.Failed, tt.want)
		}
		if tt.failed {
			continue
		}
		if got, err := os.ReadFile(filepath.Join(dir, tt.path)); err != nil || string(got) != tt.content {
			t.Errorf("%s holds %q (%v)", tt.path, got, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".new-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if target, err := os.Readlink(filepath.Join(dir, "out")); err != nil {
		t.Error(err)
	} else if entries, _ := os.ReadDir(target); len(entries) != 1 {
		t.Errorf("outside there is %v", entries)
	}
}

func TestSearchFiles(t *testing.T) {
	t.Parallel()
	dir := newTestFolder(t)
	many := filepath.Join(dir, "many")
	if err := os.Mkdir(many, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		if err := os.WriteFile(filepath.Join(many, fmt.Sprintf("f%03d", i)), []byte(strings.Repeat("w", 400)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := newBuiltin(t, "search_files", function.Options{Folder: dir})
	tests := []struct {
		name, arguments, want string
		failed                bool
	}{
		{"a name", `{"files":"*.txt"}`, "notes.txt", false},
		{"anywhere", `{"files":"./**/*.go"}`, "src/a.go\nsrc/deep/b.go", false},
		{"either", `{"files":"{notes.txt,src/a.*}"}`, "notes.txt\nsrc/a.go", false},
		{"text", `{"files":"{*.txt,src/**}","text":"(?i)two words"}`, "notes.txt:2: two words\nsrc/a.go:2: // Two Words", false},
		{"out", `{"text":"a secret"}`, "Nothing was found.", false},
		{"out by path", `{"files":"out/*"}`, "Nothing was found.", false},
		{"out by dots", `{"files":"../**"}`, "Nothing was found.", false},
		{"a bracket", `{"files":"[a"}`, "search_files: files is no pattern: a bracket is not closed", true},
		{"braces", `{"files":"{a,b}{a,b}{a,b}{a,b}{a,b}"}`, "search_files: files holds more than 4 lists of alternatives {a,b}, or more than 16 commas", true},
		{"commas", `{"files":"{` + strings.Repeat("a,", 17) + `b}"}`, "search_files: files holds more than 4 lists of alternatives {a,b}, or more than 16 commas", true},
		{"a regular expression", `{"text":"(a"}`, "search_files: text is no RE2 expression: error parsing regexp: missing closing ): `(a`", true},
		{"large", `{"text":"((a|bb|c){20}d){30}e{300}"}`, "search_files: text is too large: it compiles to 3930 instructions, at most 2000 are run; shorten repetitions such as {100,200}", true},
		{"long", `{"text":"` + strings.Repeat("a", 501) + `"}`, "search_files: a pattern is longer than 500 bytes", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := callTool(t, f, tt.arguments)
			if diff := cmp.Diff(tt.want, got.Text); diff != "" || got.Failed != tt.failed {
				t.Errorf("failed %v: %s", got.Failed, diff)
			}
		})
	}
	if got := callTool(t, f, `{"files":"many/*"}`); strings.Count(got.Text, "\n") != 200 || !strings.HasSuffix(got.Text, "\n[cut here: these are the first 200]") {
		t.Errorf("many files: %d lines", strings.Count(got.Text, "\n"))
	}
	if got := callTool(t, f, `{"files":"many/f000","text":"w"}`); got.Text != "many/f000:1: "+strings.Repeat("w", 300)+"..." {
		t.Errorf("a long line: %q", got.Text)
	}
}

func TestTodo(t *testing.T) {
	t.Parallel()
	f := newBuiltin(t, "todo", function.Options{})
	tests := []struct {
		arguments, want string
		failed          bool
	}{
		{`{"items":[]}`, "The list is empty.", false},
		{`{"items":[{"text":"plan","state":"done"},{"text":"build","state":"doing"},{"text":"ship"}]}`, "1. [x] plan\n2. [>] build\n3. [ ] ship\n1 of 3 done.", false},
		{`{"items":[{"text":"plan","state":"soon"}]}`, "the arguments of todo do not fit its schema: at /items/0/state: value must be one of 'open', 'doing', 'done'", true},
	}
	for _, tt := range tests {
		if got := callTool(t, f, tt.arguments); got.Text != tt.want || got.Failed != tt.failed {
			t.Errorf("%s: got %q", tt.arguments, got.Text)
		}
	}
}

// TestOwnFiles has the tools use a folder with a file of the server itself.
func TestOwnFiles(t *testing.T) {
	t.Parallel()
	dir := newTestFolder(t)
	own := filepath.Join(dir, "notes.txt")
	if err := os.Link(own, filepath.Join(dir, "linked.txt")); err != nil {
		t.Fatal(err)
	}
	guard, err := grant.NewGuard()
	if err == nil {
		guard, err = guard.WithOwnFiles(own)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ tool, arguments, want string }{
		{"read_file", `{"path":"notes.txt"}`, "read_file: notes.txt is a file of the server's own, which no tool may use"},
		{"read_file", `{"path":"linked.txt"}`, "read_file: linked.txt is a file of the server's own, which no tool may use"},
		{"read_file", `{"path":"in"}`, "read_file: in is a file of the server's own, which no tool may use"},
		{"write_file", `{"path":"notes.txt","content":"x"}`, "write_file: notes.txt is a file of the server's own, which no tool may use"},
		{"search_files", `{"text":"(?i)two words"}`, "src/a.go:2: // Two Words"},
	} {
		if got := callTool(t, newBuiltin(t, tt.tool, function.Options{Folder: dir, Guard: guard}), tt.arguments); got.Text != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.tool, tt.arguments, got.Text, tt.want)
		}
	}
	if text, err := os.ReadFile(own); err != nil || string(text) != "one\ntwo words\nthree" {
		t.Errorf("the server's file holds %q (%v)", text, err)
	}
}
