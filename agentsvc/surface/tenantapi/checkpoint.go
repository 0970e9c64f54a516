package tenantapi

import (
	"net/http"
	"net/url"
	"strconv"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/response"
	"stoa/authz"
)

// handleListCheckpoints answers with the checkpoints of a task, which it can be restored to.
func handleListCheckpoints(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	visibility, err := v.ResolveVisibility(r.Context(), authz.TasksRead, "")
	if err != nil {
		return err
	}
	found, err := v.Tasks.Checkpoints.List(r.Context(), visibility, agentsvc.TaskID(surface.PathParam(r, "task")))
	if err != nil {
		return err
	}
	out := checkpointList{Checkpoints: make([]checkpointBody, len(found))}
	for i, ev := range found {
		out.Checkpoints[i] = checkpointBody{ev.Seq, string(ev.Checkpoint.Reason), ev.Checkpoint.Step, ev.Frame, *encode.FormatOptionalTime(ev.At)}
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// handleRestoreCheckpoint starts a new task that continues another one from a checkpoint, and answers 201 with the
// new task. The scope is that of cancelling: restoring acts on a task of its owner. The new task counts against the
// owner's limits and budgets (see [surface.Request.RestoreTask]).
func handleRestoreCheckpoint(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	visibility, err := v.ResolveVisibility(r.Context(), authz.TasksCancel, "")
	if err != nil {
		return err
	}
	id, err := strconv.ParseInt(surface.PathParam(r, "checkpoint"), 10, 64)
	if err != nil {
		return agentsvc.ErrNotFound // an ID that is no number names no checkpoint
	}
	t, err := v.RestoreTask(r.Context(), visibility, agentsvc.TaskID(surface.PathParam(r, "task")), id)
	if err != nil {
		return err
	}
	w.Header().Set("Location", v.AddressPath("/tasks/"+url.PathEscape(string(t.ID))))
	return response.WriteJSON(w, http.StatusCreated, newTaskRecord(t))
}
