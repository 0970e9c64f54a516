package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestConfirm deletes at a terminal, where the command asks, and without one, where only --yes deletes.
func TestConfirm(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		typed   string
		yes     bool
		alone   bool // without a terminal
		code    int
		deletes bool
	}{
		"the name":             {typed: "acme\n", deletes: true},
		"another name":         {typed: "globex\n", code: exitFailed},
		"end of the input":     {code: exitFailed},
		"--yes":                {yes: true, deletes: true},
		"no terminal":          {typed: "acme\n", alone: true, code: exitUsage},
		"no terminal, --yes":   {alone: true, yes: true, deletes: true},
		"no terminal, no pipe": {alone: true, code: exitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.WriteHeader(http.StatusNoContent)
			}))
			defer ts.Close()
			var asked bytes.Buffer
			con := &console{in: strings.NewReader(c.typed), out: &asked, err: &asked, interactive: !c.alone}
			cmd := &appDeleteCmd{serverFlag: serverFlag{Server: ts.URL}, confirmFlag: confirmFlag{Yes: c.yes}, Name: "acme"}
			if code := con.reportError(cmd.Run(t.Context(), con)); code != c.code || (requests.Load() == 1) != c.deletes {
				t.Errorf("exit %d after %d requests, want %d, deleted %t: %s", code, requests.Load(), c.code, c.deletes, asked.String())
			}
		})
	}
	for typed, want := range map[string]int{"y\n": 0, "n\n": exitFailed, "": exitFailed} {
		var asked bytes.Buffer
		con := &console{in: strings.NewReader(typed), err: &asked, interactive: true}
		err := confirmFlag{}.confirmYes(t.Context(), con, "delete the key k of acme")
		if code := con.reportError(err); code != want || !strings.HasPrefix(asked.String(), "delete the key k of acme? [y/n] ") {
			t.Errorf("%q: exit %d (%v), asked %q", typed, code, err, asked.String())
		}
	}
}
