package admin

import (
	"net/http"
	"strconv"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/fleet"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/response"
	"stoa/tenancy/db"
)

// fleetHandler serves what all processes of the installation have written about themselves. It is read-only and used by
// value.
type fleetHandler struct {
	db *db.DB
	// process is the id of this process, "" = it is not in the list.
	process string
}

// Bounds of the answer about traffic.
const (
	defaultTrafficMinutes = 15
	maxTrafficMinutes     = int(fleet.MaxWindow / time.Minute)
	maxTrafficApps        = 500
)

// handleListProcesses answers with the processes, the work that one of them does for all, and the version of the schema.
func (h fleetHandler) handleListProcesses(w http.ResponseWriter, r *http.Request) error {
	f, err := fleet.Load(r.Context(), h.db)
	if err != nil {
		return err
	}
	out := processList{Processes: make([]processBody, len(f.Processes)), Leases: make([]leaseBody, len(f.Leases)), Schema: schemaBody(f.Schema)}
	for i, p := range f.Processes {
		out.Processes[i] = processBody{
			ID: p.ID, Host: p.Host, Version: p.Version, Commit: p.Commit, Role: p.Role, Status: p.Status(), Answering: p.ID == h.process,
			StartedAt: encode.FormatTime(p.StartedAt), SeenAt: encode.FormatTime(p.SeenAt), StoppingAt: encode.FormatOptionalTime(p.StoppingAt),
			RunningRuns: p.Runs, Migration: p.Migration, AwaitsRestart: append([]string{}, p.AwaitsRestart...),
		}
	}
	for i, l := range f.Leases {
		out.Leases[i] = leaseBody{l.Name, l.Process, encode.FormatTime(l.ExpiresAt)}
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// handleTraffic answers with what all processes have counted of calls and runs in the last minutes, in total, by app and by
// minute.
func (h fleetHandler) handleTraffic(w http.ResponseWriter, r *http.Request) error {
	minutes := defaultTrafficMinutes
	if text := r.URL.Query().Get("minutes"); text != "" {
		var err error
		if minutes, err = strconv.Atoi(text); err != nil || minutes < 1 || minutes > maxTrafficMinutes {
			return agentsvc.NewInvalidError("minutes", "must be a number between 1 and %d", maxTrafficMinutes)
		}
	}
	t, err := fleet.LoadTraffic(r.Context(), h.db, time.Duration(minutes)*time.Minute)
	if err != nil {
		return err
	}
	t.Limit(maxTrafficApps)
	names := t.Names()
	out := trafficBody{Minutes: minutes, Total: newCountsBody(t.Total()), Apps: make([]appTraffic, len(names)), Rest: newCountsBody(t.Rest), Series: make([]minuteBody, len(t.Minutes))}
	for i, name := range names {
		out.Apps[i] = appTraffic{name, newCountsBody(t.Apps[name])}
	}
	for i, m := range t.Minutes {
		out.Series[i] = minuteBody{encode.FormatTime(m.Start), m.Calls, m.Failed, m.Refused, m.Rejected}
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// newCountsBody returns counts as responses show them.
func newCountsBody(c fleet.Counts) countsBody {
	return countsBody{
		Calls: c.Calls, Failed: c.Failed, Refused: c.Refused, Rejected: c.Rejected, P50Seconds: quantileSeconds(c.CallTimes, .5), P99Seconds: quantileSeconds(c.CallTimes, .99),
		Runs: c.Runs, FailedRuns: c.FailedRuns, RunP50Seconds: quantileSeconds(c.RunTimes, .5), RunP99Seconds: quantileSeconds(c.RunTimes, .99),
	}
}

// quantileSeconds returns a quantile in seconds, nil if nothing was timed.
func quantileSeconds(h fleet.Histogram, q float64) *float64 {
	d, ok := h.Quantile(q)
	if !ok {
		return nil
	}
	s := d.Round(10 * time.Microsecond).Seconds()
	return &s
}

// fleetRoutes returns the endpoints about the processes.
func fleetRoutes(o Options) []surface.Route {
	h := fleetHandler{o.DB, o.ProcessID}
	return []surface.Route{
		{Method: http.MethodGet, Pattern: "/admin/processes", Serve: h.handleListProcesses},
		{Method: http.MethodGet, Pattern: "/admin/traffic", Query: []string{"minutes"}, Serve: h.handleTraffic},
	}
}

type (
	// processBody is a process of the installation, as it has written last about itself. Times are of the database's
	// clock.
	processBody struct {
		ID      string `json:"id"`
		Host    string `json:"host"`
		Version string `json:"version"`
		Commit  string `json:"commit"`
		Role    string `json:"role"`
		// Status is serving, stopping, or lost for one that was not seen for 40 seconds.
		Status fleet.Status `json:"status"`
		// Answering marks the process that gives this answer.
		Answering  bool    `json:"answering"`
		StartedAt  string  `json:"started_at"`
		SeenAt     string  `json:"seen_at"`
		StoppingAt *string `json:"stopping_at"`
		// RunningRuns are the runs in the database that the process executes.
		RunningRuns int64 `json:"running_runs"`
		// Migration is the last that its program knows.
		Migration uint `json:"migration"`
		// AwaitsRestart are keys of its configuration file that act after a restart.
		AwaitsRestart []string `json:"awaits_restart"`
	}
	// leaseBody is work for the whole installation. Process is the id of the one that does it.
	leaseBody struct {
		Name      string `json:"name"`
		Process   string `json:"process"`
		ExpiresAt string `json:"expires_at"`
	}
	// schemaBody is the state of the database's schema. Its fields are those of fleet.Schema.
	schemaBody struct {
		Migration uint `json:"migration"`
		Dirty     bool `json:"dirty"`
	}
	// processList has the processes last started first.
	processList struct {
		Processes []processBody `json:"processes"`
		Leases    []leaseBody   `json:"leases"`
		Schema    schemaBody    `json:"schema"`
	}
	// countsBody is what happened in a time. Quantiles are null if nothing was timed.
	countsBody struct {
		Calls         int64    `json:"calls"`
		Failed        int64    `json:"failed"`
		Refused       int64    `json:"refused"`
		Rejected      int64    `json:"rejected"`
		P50Seconds    *float64 `json:"p50_seconds"`
		P99Seconds    *float64 `json:"p99_seconds"`
		Runs          int64    `json:"runs"`
		FailedRuns    int64    `json:"failed_runs"`
		RunP50Seconds *float64 `json:"run_p50_seconds"`
		RunP99Seconds *float64 `json:"run_p99_seconds"`
	}
	// appTraffic is what happened in an app.
	appTraffic struct {
		App string `json:"app"`
		countsBody
	}
	// minuteBody are the calls of all apps in a minute. Its fields are those of fleet.Minute.
	minuteBody struct {
		Minute   string `json:"minute"`
		Calls    int64  `json:"calls"`
		Failed   int64  `json:"failed"`
		Refused  int64  `json:"refused"`
		Rejected int64  `json:"rejected"`
	}
	// trafficBody has the apps with the most trouble first, and in Rest the sum of those beyond its bounds. Series has as many
	// minutes as were asked for, the oldest first.
	trafficBody struct {
		Minutes int          `json:"minutes"`
		Total   countsBody   `json:"total"`
		Apps    []appTraffic `json:"apps"`
		Rest    countsBody   `json:"rest"`
		Series  []minuteBody `json:"series"`
	}
)
