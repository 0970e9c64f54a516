package webhook

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/trigger"
	"stoa/authz"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// errNoSchedule is also the answer for an agent that the caller may not know of.
var errNoSchedule = agentsvc.NewError(apierror.CodeNoEndpoint, "no such schedule")

// handleListStarts answers with the last starts of an agent by its trigger, none for an agent without one. Those of an agent
// that has left the configuration are listed as well.
func (h handler) handleListStarts(w http.ResponseWriter, r *http.Request) error {
	v, agent := surface.RequestOf(r), surface.PathParam(r, "agent")
	starts, err := trigger.ListStarts(r.Context(), h.db, v.App.ID, agent)
	if err != nil {
		return err
	}
	if _, known := v.Runtime.Card(agent); len(starts) == 0 && !known && v.Runtime.Schedules()[agent] == nil {
		return agentsvc.ErrNotFound
	}
	out := startList{Starts: make([]startInfo, len(starts))}
	for i, s := range starts {
		out.Starts[i] = startInfo{encode.FormatTime(s.At), s.Kind, s.Outcome, s.Task, s.Error}
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// handleRunSchedule starts an agent now as its schedule does: with the schedule's message, for the same owner, within
// limits and budgets. The next tick stays as it is. The caller needs the scope to call the agent; a private agent is shown
// only to those who may list the triggers.
func (h handler) handleRunSchedule(w http.ResponseWriter, r *http.Request) error {
	v, agent := surface.RequestOf(r), surface.PathParam(r, "agent")
	if err := v.Authorize(r.Context(), authz.AgentsCall, agent); err != nil {
		return err
	}
	s := v.Runtime.Schedules()[agent]
	if _, err := v.FindAgent(agent); s == nil || err != nil && !v.HasScope(authz.TasksRead) {
		return errNoSchedule
	}
	t, err := h.startSchedule(r, v, s, agent)
	h.starts.recordStart(r.Context(), v.App.ID, agent, newStart(trigger.ManualStart, deliveryOutcome(false, err), t.ID, err))
	if err != nil {
		return err
	}
	status, body := newDeliveryResponse(t, false)
	return response.WriteJSON(w, status, body)
}

// startSchedule submits the message of a schedule. The audit entry is written once the call is admitted, before its task:
// no task is started by hand without one.
func (h handler) startSchedule(r *http.Request, v *surface.Request, s *runtime.Schedule, agent string) (agentsvc.Task, error) {
	ctx := r.Context()
	sub := s.NewSubmission(agent, "manual", time.Now())
	if err := v.AdmitCall(ctx, &sub); err != nil {
		return agentsvc.Task{}, err
	}
	var b db.Batch
	if err := audit.Queue(ctx, &b, audit.Entry{Actor: v.Actor(), Action: "trigger.run", AppID: v.App.ID, Detail: map[string]any{"agent": agent}}, "1 = 1"); err != nil {
		return agentsvc.Task{}, err
	}
	if err := h.db.Tenant(v.App.ID).Do(ctx, &b); err != nil {
		return agentsvc.Task{}, err
	}
	return v.SubmitMessage(ctx, sub)
}

// newStart returns what is stored about an attempt to start an agent. The error is what a caller may read.
func newStart(kind trigger.StartKind, outcome string, task agentsvc.TaskID, err error) trigger.Start {
	s := trigger.Start{Kind: kind, Outcome: outcome, Task: task}
	if err != nil {
		s.Error = apierror.Classify(err).Text
	}
	return s
}

// startRecorder stores starts for the list of them.
type startRecorder struct {
	db  *db.DB
	log *slog.Logger

	mu sync.Mutex // guards unsignedAt
	// unsignedAt is when an unsigned delivery to a webhook was stored last: anybody can send them, and a write for each
	// would cost more than its sender pays.
	unsignedAt map[hookKey]time.Time
}

// hookKey names a webhook.
type hookKey struct {
	app   db.ID
	agent string
}

const (
	// unsignedInterval is the time between two unsigned deliveries to one webhook that are stored.
	unsignedInterval = 10 * time.Minute
	// maxUnsigned bounds startRecorder.unsignedAt. A full map is emptied.
	maxUnsigned = 10_000
	// recordTimeout bounds a write that outlives its request.
	recordTimeout = 5 * time.Second
)

// recordStart stores a start, also if its client has gone. An error is logged: the start has taken place.
func (r *startRecorder) recordStart(ctx context.Context, app db.ID, agent string, s trigger.Start) {
	if s.Outcome == "unsigned" && !r.isDue(hookKey{app, agent}, time.Now()) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if err := trigger.RecordStart(ctx, r.db, app, agent, s); err != nil {
		r.log.WarnContext(ctx, "a start of an agent is missing in the list of its starts", "agent", agent, "outcome", s.Outcome, "error", err)
	}
}

// isDue reports whether an unsigned delivery is stored.
func (r *startRecorder) isDue(key hookKey, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.unsignedAt[key]; ok && now.Sub(at) < unsignedInterval {
		return false
	}
	if len(r.unsignedAt) >= maxUnsigned {
		clear(r.unsignedAt)
	}
	r.unsignedAt[key] = now
	return true
}

type (
	// startInfo is an attempt to start an agent by its trigger.
	startInfo struct {
		At string `json:"at"`
		// Kind is tick, manual or delivery.
		Kind trigger.StartKind `json:"kind"`
		// Outcome is started, repeated, unsigned, refused, invalid or failed.
		Outcome string          `json:"outcome"`
		TaskID  agentsvc.TaskID `json:"task_id,omitempty"`
		// Error is why there is no task.
		Error string `json:"error,omitempty"`
	}
	// startList has the newest start first, at most trigger.MaxStarts.
	startList struct {
		Starts []startInfo `json:"starts"`
	}
)
