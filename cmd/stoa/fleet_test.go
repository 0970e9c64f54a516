package main

import (
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"stoa/tenancy/db/dbtest"
)

// processesAnswer is the response of GET /admin/processes.
type processesAnswer struct {
	Processes []struct {
		ID, Version, Role, Status string
		Answering                 bool
		Migration                 int
	}
	Leases []struct{ Name, Process string }
	Schema struct{ Migration int }
}

// TestFleet: each of two processes shows both, with the work that one of them does for all, and the calls that either
// has answered; one that stops leaves the list, and its calls still count.
func TestFleet(t *testing.T) {
	onEachFleet(t, func(t *testing.T, _ bool, args []string) {
		one, two := startProcess(t, t.TempDir(), args...), startProcess(t, t.TempDir(), args...)
		load := func(p *process) (got processesAnswer) {
			t.Helper()
			p.requireStatus(t, http.StatusOK, &got, "GET", "/admin/processes", testSecret, nil)
			return got
		}
		var ids []string
		dbtest.WaitUntil(t, "both processes and their leases are listed", func() bool {
			got := load(one)
			ids = nil
			for _, p := range got.Processes {
				if p.Status != "serving" || p.Role != "all" || p.Version == "" || p.Migration != got.Schema.Migration {
					t.Fatalf("%+v", got)
				}
				ids = append(ids, p.ID)
			}
			for _, l := range got.Leases {
				if !slices.Contains(ids, l.Process) {
					return false
				}
			}
			return len(ids) == 2 && len(got.Leases) > 0
		})
		if a, b := load(one).Processes[0].Answering, load(two).Processes[0].Answering; a == b {
			t.Error("both are the one that answers")
		}
		one.createApp(t, "acme", streamingApp)
		token := one.createToken(t, "acme", "ana", nil)
		for _, p := range []*process{one, two, two} {
			p.requireStatus(t, http.StatusOK, nil, "POST", "/agents/assistant", token, newRPCCall("message:send", newTextMessage("hi")))
		}
		if err := two.SignalAndWait(syscall.SIGTERM); err != nil {
			t.Fatalf("%v:\n%s", err, two.Output())
		}
		if got := load(one); len(got.Processes) != 1 || !got.Processes[0].Answering {
			t.Errorf("after one has stopped: %+v", got)
		}
		dbtest.WaitUntil(t, "the calls of both processes are counted", func() bool {
			_, body := one.doRequest(t, "GET", "/admin/traffic", testSecret, nil)
			return strings.Contains(body, `"apps":[{"app":"acme","calls":3,"failed":0,`)
		})
	})
}
