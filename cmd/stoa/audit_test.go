package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/store/leader"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// auditEntry is an entry of the audit trail in the JSON of the API.
type auditEntry struct {
	Actor, Issuer, Action, Client, Hash string

	RequestID string `json:"request_id"`
	Seq       int64
	Detail    map[string]any
}

func (ts *testServer) listAuditEntries(t *testing.T, query string) (entries []auditEntry) {
	t.Helper()
	var page struct{ Entries []auditEntry }
	ts.requireStatus(t, http.StatusOK, &page, "GET", "/admin/audit?"+query, testSecret, nil)
	slices.Reverse(page.Entries)
	return page.Entries
}

// TestAuditWatched checks that a manipulation of the trail is reported by the log, the admin API and the metrics.
func TestAuditWatched(t *testing.T) {
	t.Parallel()
	var log sharedBuffer
	h := openLoggedServer(t, newSQLiteURL(t), slog.New(slog.NewTextHandler(&log, nil)))
	h.createApp(t, "acme", paidApp)
	h.listAuditEntries(t, "app=acme") // the chain exists
	var b db.Batch
	b.Exec(nil, `UPDATE audit SET actor = 'eve' WHERE app = 'acme' AND seq = 1`)
	if err := h.db.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	lease := leader.New(h.db, "audit-of-the-test", "test") // the server has its own
	if err := audit.NewInspector(h.apps.Trail, lease).InspectIfLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	var page struct {
		Flaws []struct {
			App, Flaw string
			Seq       int64
		}
	}
	h.requireStatus(t, http.StatusOK, &page, "GET", "/admin/audit?app=acme&page_size=1", testSecret, nil)
	if len(page.Flaws) != 1 || page.Flaws[0].Seq != 1 || page.Flaws[0].App != "acme" || !strings.HasPrefix(page.Flaws[0].Flaw, "it was changed") {
		t.Errorf("flaws %+v", page.Flaws)
	}
	if text := log.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "not as it was written") {
		t.Errorf("the log: %s", text)
	}
	if n := h.sumMetric(t, "stoa_audit_flaws"); n != 1 {
		t.Errorf("the metrics have %v flaws", n)
	}
}

// TestAudit checks that decisions about tasks, and supplied and deleted credentials, are on the trail with actor and
// client, also if the task is in memory only; and that no argument and no credential is.
func TestAudit(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		inMemory := `storage: {tasks: {backend: inmemory}, sessions: {backend: inmemory}}` + "\n"
		for name, more := range map[string]string{"acme": "", "brief": inMemory} {
			h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": name, "config": fmt.Sprintf(tenantConfig, "other") + more})
			ana, op := h.createToken(t, name, "ana", nil), h.createToken(t, name, "op", map[string]any{"roles": []string{"approver"}})
			decide := func(how string, body map[string]any) {
				t.Helper()
				task, call := h.createApprovalTask(t, ana)
				body["call_id"] = call
				req := h.newRequest(t, "POST", "/tasks/"+task+"/"+how, op, body)
				req.Header.Set("X-Request-Id", how+"-"+name)
				if status, answer := h.sendRequest(t, req); status != http.StatusOK {
					t.Fatalf("%s: %d %s", how, status, answer)
				}
				if status, _ := h.doRequest(t, "POST", "/tasks/"+task+"/"+how, op, body); status != http.StatusConflict {
					t.Errorf("a second decision is answered %d", status)
				}
			}
			decide("approve", map[string]any{"arguments": map[string]any{"expression": "40+2"}, "comment": "canary"})
			decide("reject", map[string]any{})
			task, call := h.createApprovalTask(t, ana)
			byMessage := newDecisionMessage(appIDs{approvalTask: task, callID: call})
			h.requireStatus(t, http.StatusOK, nil, "POST", "/agents/assistant", op, newRPCCall("message:send", byMessage))
			h.createCredentialTask(t, ana) // supplies one of two credentials
			h.requireStatus(t, http.StatusNoContent, nil, "DELETE", "/credentials/open", ana, nil)
			h.requireStatus(t, http.StatusNotFound, nil, "DELETE", "/credentials/open", ana, nil)

			var got []string
			entries := h.listAuditEntries(t, "app="+name)
			for _, e := range entries {
				got = append(got, e.Actor+" "+e.Action)
				if e.Client != "127.0.0.1" || e.RequestID == "" || e.Seq == 0 || len(e.Hash) != 64 {
					t.Errorf("%s: %+v", e.Action, e)
				}
			}
			if diff := cmp.Diff([]string{"admin app.create", "admin app.tokens.create", "admin app.tokens.create", "op approval.approve", "op approval.reject",
				"op approval.approve", "ana credential.supply", "ana credential.forget"}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			edit := entries[3]
			before, _ := edit.Detail["before"].(map[string]any)
			after, _ := edit.Detail["after"].(map[string]any)
			if edit.RequestID != "approve-"+name || edit.Issuer == "" || before["arguments"] == after["arguments"] || edit.Detail["tool"] != "calc" {
				t.Errorf("the edit stands as %+v", edit)
			}
			raw, _ := json.Marshal(entries)
			for _, canary := range []string{"40+2", "canary", "ana's own"} {
				if bytes.Contains(raw, []byte(canary)) {
					t.Errorf("%q stands on the trail", canary)
				}
			}
			if got := h.listAuditEntries(t, "app="+name+"&action=approval&actor=op"); len(got) != 3 {
				t.Errorf("%d approvals, want 3", len(got))
			}
		}
	})
}

// TestAuditQuery checks that a misspelled or malformed filter is refused: ignoring it would select everything.
func TestAuditQuery(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, dbtest.NewSQLiteURL(t))
	for _, q := range []string{"apps=acme", "since=yesterday", "until=1", "page_size=1"} {
		path := "/admin/audit/export?" + q
		h.requireStatus(t, http.StatusBadRequest, nil, "GET", path, testSecret, nil)
	}
	h.requireStatus(t, http.StatusBadRequest, nil, "GET", "/admin/audit?actors=ana", testSecret, nil)
}

// TestAuditCommands exports the trail and verifies it, from the server and from a file, before and after a
// manipulation.
func TestAuditCommands(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		for _, name := range []string{"acme", "globex"} {
			h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": name, "config": fmt.Sprintf(tenantConfig, "other")})
			h.createToken(t, name, "ana", nil)
		}
		h.requireStatus(t, http.StatusNoContent, nil, "DELETE", "/admin/apps/globex", testSecret, nil)
		stoa := func(want int, args ...string) (out string) {
			t.Helper()
			var stdout, stderr bytes.Buffer
			args = append([]string{"audit"}, args...)
			if !slices.ContainsFunc(args, func(a string) bool { return strings.HasSuffix(a, ".ndjson") }) {
				args = append(args, "--server", h.url)
			}
			if code := runCommand(t.Context(), args, &console{out: &stdout, err: &stderr}); code != want {
				t.Errorf("stoa %s ends with %d, want %d:\n%s%s", strings.Join(args, " "), code, want, &stdout, &stderr)
			}
			return stdout.String() + stderr.String()
		}
		file := filepath.Join(t.TempDir(), "trail.ndjson")
		exportTrail := func() string {
			t.Helper()
			text := stoa(0, "export")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			return text
		}
		text := exportTrail()
		for _, out := range []string{stoa(0, "verify"), stoa(0, "verify", file), stoa(0, "verify", "--app", "acme")} {
			if !strings.Contains(out, "acme") || !strings.Contains(out, "good") {
				t.Errorf("verified:\n%s", out)
			}
		}
		if out := stoa(0, "verify"); !strings.Contains(out, "globex") {
			t.Errorf("the chain of the deleted app is not verified:\n%s", out)
		}
		entries := h.listAuditEntries(t, "app=acme")
		head := entries[len(entries)-1].Hash
		stoa(0, "verify", "--contains", head)
		stoa(1, "verify", "--contains", strings.Repeat("0", 64))
		if out := stoa(0, "list", "--action", "app.tokens"); strings.Count(out, "app.tokens.create") != 2 || strings.Contains(out, "app.delete") {
			t.Errorf("listed:\n%s", out)
		}
		if out := stoa(0, "export", "--app", "globex", "--actor", "stoa"); strings.Count(out, "\n") != 2 || !strings.Contains(out, `"part":true`) {
			t.Errorf("exported of one actor:\n%s", out)
		}
		if err := os.WriteFile(file, []byte(text[:strings.LastIndex(text[:len(text)-1], "\n")+1]), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := stoa(1, "verify", file); !strings.Contains(out, "it was cut off") {
			t.Errorf("a file without its end:\n%s", out)
		}
		var b db.Batch
		b.Exec(nil, `UPDATE audit SET actor = 'nobody' WHERE action = 'app.delete'`)
		if err := h.db.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		exportTrail()
		for _, out := range []string{stoa(1, "verify"), stoa(1, "verify", file)} {
			if !strings.Contains(out, "globex, entry 3") || !strings.Contains(out, "it was changed") || !strings.Contains(out, "BAD") {
				t.Errorf("verified after a change:\n%s", out)
			}
		}
		stoa(0, "verify", "--app", "acme")
	})
}

// TestFailedCredentialsAudited checks that refused credentials are on the trail after a process has stopped, with the
// client's address and without the credentials.
func TestFailedCredentialsAudited(t *testing.T) {
	t.Parallel()
	onEachProcessDatabase(t, func(t *testing.T, dir, database string) {
		p := startProcess(t, dir, "--database", database)
		for range 12 {
			p.doRequest(t, "GET", "/admin/apps", "canary-of-a-secret", nil)
		}
		p.requireStatus(t, http.StatusUnauthorized, nil, "GET", "/tasks", "canary.of.token", nil)
		if err := p.SignalAndWait(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		p = startProcess(t, dir, "--database", database)
		counts := map[string]string{}
		for _, e := range p.listAuditEntries(t, "action=authentication.fail&actor=stoa") {
			if e.Client != "127.0.0.1" || e.Detail["first_at"] == nil || e.Detail["last_at"] == nil {
				t.Errorf("%+v", e)
			}
			counts[fmt.Sprint(e.Detail["credential"], " ", e.Detail["reason"])] = fmt.Sprint(e.Detail["count"])
		}
		if diff := cmp.Diff(map[string]string{"admin_secret invalid": "12", "token invalid": "1"}, counts); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if status, text := p.doRequest(t, "GET", "/admin/audit/export", testSecret, nil); status != http.StatusOK || strings.Contains(text, "canary") {
			t.Errorf("%d %s", status, text)
		}
	})
}
