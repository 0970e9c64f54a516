package runtime_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/document/extract"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/sandbox"
	"stoa/agentsvc/task"
	"stoa/tenancy/db/dbtest"
	grants "stoa/tenancy/grant"
)

func TestMain(m *testing.M) {
	sandbox.RunHelper(os.Getenv(sandbox.HelperVariable)) // the programs that these tests run start as this binary
	extract.RunHelper(os.Getenv(extract.HelperVariable))
	os.Exit(m.Run())
}

// withSandbox returns a change that adds a sandbox to the dependencies.
func withSandbox(t *testing.T) func(h *runtime.Dependencies) {
	t.Helper()
	helper, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	host := sandbox.NewHost(helper, sandbox.Options{})
	return func(h *runtime.Dependencies) { h.Sandbox = host }
}

// newDefaultApp returns the operator's app of an example, whose folder has two files.
func newDefaultApp(t *testing.T, name string) (a *runtime.Runtime, folder string) {
	t.Helper()
	folder = t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "notes.txt"), []byte("buy green tea\nand milk\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	src, err := os.ReadFile("../../examples/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg := mustParse(t, string(src), config.Options{Lookup: func(string) (string, bool) { return folder, true }})
	return newAppWith(t, dbtest.NewSQLite(t), cfg, runtime.Tenant{ID: "default", Name: "default", Revision: 1, DefaultApp: true, PrivateNetwork: true},
		slog.New(slog.DiscardHandler), withSandbox(t)), folder
}

// TestToolExamples runs the examples of the built-in tools.
func TestToolExamples(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<h1>Tea</h1><p>Green <b>or</b> black.</p>")
	}))
	t.Cleanup(srv.Close)
	for _, c := range []struct{ file, text, says string }{
		{"commands", "count words in notes.txt", "exit code 0\n5 notes.txt\n"},
		{"commands", "count lines in notes.txt; id", "shell: exit code 1\n[stderr]\nwc: 'notes.txt; id': No such file or directory\n"},
		{"commands", "list", "exit code 0\nnotes.txt\n"},
		{"commands", "run ls; id", "shell: command: ';' needs a shell, and there is none; give one program, and arguments as they are in args or in quotes"},
		{"commands", "run id", "shell: id is not allowed to run; these are: ls, wc"},
		{"files", "read notes.txt", "buy green tea\nand milk\n"},
		{"files", "read ../../etc/passwd", `read_file: "../../etc/passwd" is no path in the folder; give one such as notes/today.txt`},
		{"files", "note more tea", "Noted: notes/latest.txt now has 8 bytes."},
		{"files", "find tea", "notes.txt:1: buy green tea"},
		{"web", "open " + srv.URL, "# Tea\n\nGreen **or** black."},
		{"web", "look up " + srv.URL, "the arguments of lookup do not fit its schema: at /url: "},
		{"todo", "bake a cake", "1. [ ] mix\n2. [>] bake a cake\n3. [ ] eat\n0 of 3 done."},
	} {
		t.Run(c.file+" "+strings.ReplaceAll(c.text, "/", "_"), func(t *testing.T) {
			t.Parallel()
			a, _ := newDefaultApp(t, c.file)
			outcome, _ := runTurn(t, a, newSubmissionFor("assistant", c.text))
			got := outcome.Status.Message.Text()
			if outcome.Status.State != agentsvc.Completed || !strings.HasPrefix(strings.NewReplacer("‘", "'", "’", "'").Replace(got), c.says) {
				t.Errorf("%s %q, want %q", outcome.Status.State, got, c.says)
			}
		})
	}
}

const shell = `
llms:
  demo:
    provider: scripted
    script:
      - when: {tool_result: shell}
        then: [{say: "{{result}}"}]
      - when: {text: "^run (?P<line>.*)$"}
        then: [{call: {tool: shell, arguments: {command: "{{line}}"}}}]
agents: {helper: {llm: demo, tools: [shell]}}
tools:
  shell: {type: command, working_directory: FOLDER, require_approval: false`

// TestCommandSettings checks each setting of a command tool.
func TestCommandSettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, settings, text, says string }{
		{"open", "", "run ls", "exit code 0\n"},
		{"dangerous", "", "run env", "shell: env is not allowed to run"},
		{"allowed", "allowed_commands: [ls]", "run id", "shell: id is not allowed to run; these are: ls"},
		{"denied", "denied_commands: [ls]", "run ls", "shell: ls is not allowed to run"},
		{"time", "allowed_commands: [sleep], max_execution_time: 300ms", "run sleep 60", "shell: stopped after 300ms\n"},
		{"folder", "allowed_commands: [pwd]", "run pwd", "exit code 0\nFOLDER\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			folder, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			src := strings.ReplaceAll(shell, "FOLDER", folder) + ", " + c.settings + "}\n"
			a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, strings.Replace(src, ", }", "}", 1), config.Options{}),
				runtime.Tenant{ID: "default", Name: "default", Revision: 1, DefaultApp: true}, slog.New(slog.DiscardHandler), withSandbox(t))
			start := time.Now()
			outcome, _ := runTurn(t, a, newSubmission(c.text))
			if got, want := outcome.Status.Message.Text(), strings.ReplaceAll(c.says, "FOLDER", folder); !strings.HasPrefix(got, want) {
				t.Errorf("%s %q, want %q", outcome.Status.State, got, want)
			}
			if time.Since(start) > 10*time.Second {
				t.Errorf("it took %v", time.Since(start))
			}
		})
	}
}

// TestFunctionSettings checks max_execution_time of a function.
func TestFunctionSettings(t *testing.T) {
	t.Parallel()
	requested := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(requested)
		<-r.Context().Done()
	}))
	t.Cleanup(srv.Close)
	src := strings.Replace(shell, "type: command, working_directory: FOLDER", "type: function, handler: web_fetch, max_execution_time: 200ms", 1) + "}\n"
	src = strings.Replace(src, `{command: "{{line}}"}`, `{url: "{{line}}"}`, 1)
	a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, src, config.Options{}), runtime.Tenant{ID: "default", Name: "default", Revision: 1, DefaultApp: true, PrivateNetwork: true},
		slog.New(slog.DiscardHandler))
	outcome, _ := runTurn(t, a, newSubmission("run "+srv.URL))
	if got := outcome.Status.Message.Text(); !strings.HasPrefix(got, "shell did not end within 200ms and was stopped") {
		t.Errorf("%s %q", outcome.Status.State, got)
	}
	<-requested
}

// TestCommandOfTenant checks that a tenant's programs run in a sandbox that isolates completely, or the app is refused.
func TestCommandOfTenant(t *testing.T) {
	t.Parallel()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	src := strings.ReplaceAll(shell, "FOLDER", folder) + ", allowed_commands: [cat, bash]}\n"
	granted := grants.ParseList([]string{"command=" + folder})
	cfg := mustParse(t, src, config.Options{Tenant: true, Grants: granted})
	tenant := runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, Grants: granted}
	_, err = runtime.Build(cfg, tenant, runtime.Dependencies{DB: dbtest.NewSQLite(t), Host: runtime.Host{PublicEgress: egress.New(egress.Options{})}, Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "tools.shell: programs run only in a sandbox") {
		t.Errorf("without a sandbox: %v", err)
	}
	var log strings.Builder
	a := newAppWith(t, dbtest.NewSQLite(t), cfg, tenant, slog.New(slog.NewTextHandler(&log, nil)), withSandbox(t))
	if !strings.Contains(log.String(), "a tool runs programs of this host") || !strings.Contains(log.String(), "sandbox=") {
		t.Errorf("the log does not say which sandbox there is: %s", log.String())
	}
	for _, text := range []string{"run cat /etc/passwd", "run bash -c 'cat /etc/passwd /proc/1/environ'", "run cat ../../../etc/hosts"} {
		outcome, _ := runTurn(t, a, newSubmission(text))
		if got := outcome.Status.Message.Text(); !strings.HasPrefix(got, "shell: exit code 1\n[stderr]\n") || strings.Contains(got, "root:") || strings.Contains(got, "localhost") {
			t.Errorf("%s: %q", text, got)
		}
	}
}

// TestCommandCancelled checks that the cancellation of a task ends its program at once.
func TestCommandCancelled(t *testing.T) {
	t.Parallel()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	src := strings.ReplaceAll(shell, "FOLDER", folder) + ", allowed_commands: [sleep]}\n"
	a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, src, config.Options{}), runtime.Tenant{ID: "default", Name: "default", Revision: 1, DefaultApp: true},
		slog.New(slog.DiscardHandler), withSandbox(t))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, events, err := a.Tasks().Messages.SubmitAndFollow(ctx, newSubmission("run sleep 600"))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for ev, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Message != nil && len(ev.Message.ToolCalls) > 0 {
			start = time.Now()
			if _, err := a.Tasks().Canceller.Cancel(ctx, task.Visibility{Agents: []string{"helper"}, Owner: &ana}, ev.Task); err != nil {
				t.Fatal(err)
			}
		}
	}
	if time.Since(start) > 2*time.Second {
		t.Errorf("it took %v to end", time.Since(start))
	}
}
