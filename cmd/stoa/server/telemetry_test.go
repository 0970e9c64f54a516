package server

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/fleet"
	"stoa/agentsvc/guardrail"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
	"stoa/tenancy/db/dbtest"
)

// TestWithoutTelemetry checks that events are accepted where nothing records them.
func TestWithoutTelemetry(t *testing.T) {
	t.Parallel()
	none := telemetry{traffic: fleet.NewRecorder()}
	none.recordFinding(t.Context(), "acme", guardrail.Finding{})
	none.recordCommitGroup(t.Context(), 1)
	none.recordRunEnd(t.Context(), "acme", store.Run{}, agentsvc.Failed, 0)
	none.recordRequest(surface.Observation{App: "acme", Agent: "a"})
	if err := none.recordOutcome(t.Context(), "acme", agentsvc.ErrLeaseLost); !errors.Is(err, agentsvc.ErrLeaseLost) {
		t.Errorf("the outcome is %v", err)
	}
}

// TestRecordedTraffic checks what of each kind of answer is counted without metrics: over JSON-RPC an error has the
// status 200; a client that went away is no error; streams have no duration; what reaches no agent is no call.
func TestRecordedTraffic(t *testing.T) {
	t.Parallel()
	none := telemetry{traffic: fleet.NewRecorder()}
	for _, o := range []surface.Observation{
		{App: "acme", Agent: "a", Status: 200, Duration: time.Second},
		{App: "acme", Agent: "a", Status: 200, Duration: time.Hour, Stream: true},
		{App: "acme", Agent: "a", Status: statusGone, Duration: time.Second},
		{App: "acme", Agent: "a", Status: 200, Code: apierror.Internal},
		{App: "acme", Agent: "a", Status: 503, Code: apierror.Unavailable},
		{App: "acme", Agent: "a", Status: 500}, // a webhook whose task has failed
		{App: "acme", Agent: "a", Status: 429, Code: apierror.ResourceExhausted},
		{App: "acme", Agent: "a", Status: 400, Code: apierror.InvalidArgument},
		{App: "acme", Status: 500, Code: apierror.Internal},
		{Status: 401, Code: apierror.Unauthenticated},
	} {
		none.recordRequest(o)
	}
	for state, took := range map[agentsvc.State]time.Duration{agentsvc.Completed: time.Second, agentsvc.Failed: time.Second, "": time.Second} {
		none.recordRunEnd(t.Context(), "acme", store.Run{}, state, took)
	}
	d := dbtest.NewSQLite(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := fleet.NewReporter(fleet.Options{DB: d, Recorder: none.traffic, Log: slog.New(slog.DiscardHandler)}).Run(ended); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	all, err := fleet.LoadTraffic(t.Context(), d, time.Minute)
	if err != nil || len(all.Apps) != 1 {
		t.Fatal(err, all)
	}
	got := all.Total()
	timed := int64(0)
	for _, n := range got.CallTimes {
		timed += n
	}
	if got.Calls != 8 || got.Failed != 3 || got.Refused != 1 || got.Rejected != 1 || timed != 7 || got.Runs != 3 || got.FailedRuns != 2 {
		t.Errorf("%+v", got)
	}
}

// statusGone is the status of a request whose client disconnected.
const statusGone = 499
