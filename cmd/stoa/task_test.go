package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"stoa/tenancy/db/dbtest"
)

// TestMissingScope approves a tool call with a token that may not, creates the token that the refusal suggests by the
// command that it names, and approves with that.
func TestMissingScope(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, dbtest.NewSQLiteURL(t))
	h.createApp(t, "acme", fmt.Sprintf(tenantConfig, "other"))
	ana := h.createToken(t, "acme", "ana", nil)
	var list struct {
		Tasks []struct {
			TaskID string `json:"task_id"`
		}
	}
	h.requireStatus(t, http.StatusOK, nil, "POST", "/agents/assistant", ana, newRPCCall("message:send", newTextMessage("sum")))
	h.requireStatus(t, http.StatusOK, &list, "GET", "/tasks", ana, nil)
	run := func(token string, args ...string) (code int, out string) {
		var written bytes.Buffer
		code = runCommand(t.Context(), append(args, "--server", h.url, "--token", token), &console{in: strings.NewReader(""), out: &written, err: &written})
		return code, written.String()
	}
	code, refusal := run(ana, "task", "approve", list.Tasks[0].TaskID, "--app", "acme", "--yes")
	_, command, _ := strings.Cut(refusal, "create a token for it: stoa ")
	if want := "app token acme --sub NAME --role approver --scope 'tasks:approve tasks:read'\n"; code != exitFailed || command != want {
		t.Fatalf("exit code %d, wrote %q, want the command %q", code, refusal, want)
	}
	var token bytes.Buffer
	args := []string{"app", "token", "acme", "--sub", "otto", "--role", "approver", "--scope", "tasks:approve tasks:read", "--server", h.url}
	if code := runCommand(t.Context(), args, &console{in: strings.NewReader(""), out: &token, err: &token}); code != 0 {
		t.Fatal(token.String())
	}
	if code, out := run(strings.TrimSpace(token.String()), "task", "approve", list.Tasks[0].TaskID, "--yes"); code != 0 || !strings.Contains(out, "is working") {
		t.Errorf("exit code %d, wrote %q", code, out)
	}
	for _, c := range [][]string{{"task", "cancel", "nosuch"}, {"task", "list"}, {"call", "assistant", "hello"}} {
		narrow := h.createToken(t, "acme", "ana", map[string]any{"scope": "agents:read"})
		if code, out := run(narrow, c...); code != exitFailed || !strings.Contains(out, "create a token for it: stoa app token APP --sub NAME --role ") {
			t.Errorf("%v: exit code %d, wrote %q", c, code, out)
		}
	}
}
