package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/fleet"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/tenancy/db"
)

// TestTraffic: the answer has the apps with the most trouble first, quantiles where something was timed and null where
// nothing was, and the sum; a window is within an hour.
func TestTraffic(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, newRoutes)
	if _, body := h.Do(t, http.MethodGet, "/admin/traffic", surfacetest.Secret, nil); !strings.Contains(body, `"minutes":15,"total":{"calls":0,"failed":0,"refused":0,"rejected":0,"p50_seconds":null`) || !strings.Contains(body, `"apps":[]`) {
		t.Errorf("without traffic: %s", body)
	}
	counts := fleet.NewRecorder()
	for range 98 {
		counts.RecordCall("busy", fleet.Succeeded, 10*time.Millisecond)
	}
	counts.RecordCall("busy", fleet.Refused, 5*time.Second)
	counts.RecordCall("busy", fleet.Rejected, 5*time.Second)
	counts.RecordCall("failing", fleet.Failed, -1)
	counts.RecordRun("failing", true, time.Minute)
	report(t, h, counts)
	var got struct {
		Total map[string]any
		Apps  []struct {
			App           string
			Calls, Failed int
			P50, P99      *float64
			Refused       int
			Rejected      int
			FailedRuns    int      `json:"failed_runs"`
			P50Seconds    *float64 `json:"p50_seconds"`
			P99Seconds    *float64 `json:"p99_seconds"`
			RunP50Seconds *float64 `json:"run_p50_seconds"`
		}
	}
	_, body := h.Do(t, http.MethodGet, "/admin/traffic?minutes=60", surfacetest.Secret, nil)
	if err := json.Unmarshal([]byte(body), &got); err != nil || len(got.Apps) != 2 {
		t.Fatalf("%v %s", err, body)
	}
	if f := got.Apps[0]; f.App != "failing" || f.Calls != 1 || f.Failed != 1 || f.FailedRuns != 1 || f.P50Seconds != nil || f.RunP50Seconds == nil || *f.RunP50Seconds < 54 || *f.RunP50Seconds > 66 {
		t.Errorf("%+v in %s", f, body)
	}
	if b := got.Apps[1]; b.Calls != 100 || b.Refused != 1 || b.Rejected != 1 || *b.P50Seconds > .011 || *b.P50Seconds < .009 || *b.P99Seconds < 4.5 {
		t.Errorf("%+v in %s", b, body)
	}
	if got.Total["calls"] != 101.0 {
		t.Errorf("in total %v", got.Total)
	}
	for _, minutes := range []string{"0", "61", "x", "-1", "1.5"} {
		if resp, body := h.Do(t, http.MethodGet, "/admin/traffic?minutes="+minutes, surfacetest.Secret, nil); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "minutes: must be a number between 1 and 60") {
			t.Errorf("%s minutes: %d %s", minutes, resp.StatusCode, body)
		}
	}
}

// TestTrafficByMinute: the answer has an entry for each minute of the window, the oldest first and without a gap, with what
// all processes have counted in it.
func TestTrafficByMinute(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, newRoutes)
	counts := fleet.NewRecorder()
	for _, outcome := range []fleet.Outcome{fleet.Succeeded, fleet.Succeeded, fleet.Failed} {
		counts.RecordCall("acme", outcome, -1)
	}
	report(t, h, counts)
	execSQL(t, h, `UPDATE traffic SET process = 'before'`)
	counts = fleet.NewRecorder()
	counts.RecordCall("acme", fleet.Refused, -1)
	counts.RecordCall("globex", fleet.Rejected, -1)
	report(t, h, counts)
	execSQL(t, h, `UPDATE traffic SET started_at = (SELECT MAX(started_at) FROM traffic) - 180000000 WHERE process = 'before'`)
	type entry struct {
		Minute                           time.Time
		Calls, Failed, Refused, Rejected int
	}
	for _, tt := range []struct{ minutes, calls int }{{10, 5}, {2, 2}} {
		var got struct{ Series []entry }
		_, body := h.Do(t, http.MethodGet, fmt.Sprint("/admin/traffic?minutes=", tt.minutes), surfacetest.Secret, nil)
		if err := json.Unmarshal([]byte(body), &got); err != nil || len(got.Series) != tt.minutes {
			t.Fatalf("%d minutes: %v %s", tt.minutes, err, body)
		}
		var busy []entry
		for i, e := range got.Series {
			if want := got.Series[0].Minute.Add(time.Duration(i) * time.Minute); !e.Minute.Equal(want) || e.Minute.Second() != 0 {
				t.Errorf("%d minutes: entry %d is of %v, want %v", tt.minutes, i, e.Minute, want)
			}
			if e.Calls > 0 {
				busy = append(busy, e)
			}
		}
		now := busy[len(busy)-1].Minute
		want := []entry{{now.Add(-3 * time.Minute), 3, 1, 0, 0}, {now, 2, 0, 1, 1}}
		if tt.calls == 2 {
			want = want[1:]
		}
		if diff := cmp.Diff(want, busy); diff != "" {
			t.Errorf("%d minutes (-want +got):\n%s", tt.minutes, diff)
		}
	}
}

// report writes counts to the fixture's database as a process does that stops.
func report(t *testing.T, h *surfacetest.Fixture, counts *fleet.Recorder) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := fleet.NewReporter(fleet.Options{DB: h.DB, Recorder: counts, Process: fleet.Process{ID: "gone"}, Log: slog.New(slog.DiscardHandler)})
	if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func execSQL(t *testing.T, h *surfacetest.Fixture, statement string) {
	t.Helper()
	var b db.Batch
	b.Exec(nil, statement)
	if err := h.DB.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}
