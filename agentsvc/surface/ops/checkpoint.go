package ops

import (
	"net/http"
	"strconv"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/authz"
)

// listCheckpoints answers with the points that a task of the caller's, or of the app's, can be restored to.
func listCheckpoints(w http.ResponseWriter, r *http.Request) error {
	v := surface.VisitOf(r)
	reach, err := v.Reach(r.Context(), authz.TasksRead, "")
	if err != nil {
		return err
	}
	found, err := v.Tasks().Checkpoints(r.Context(), reach, agentsvc.TaskID(surface.Param(r, "task")))
	if err != nil {
		return err
	}
	out := checkpointList{Checkpoints: make([]checkpointBody, len(found))}
	for i, ev := range found {
		out.Checkpoints[i] = checkpointBody{ev.Seq, string(ev.Checkpoint.Reason), ev.Checkpoint.Step, ev.Frame, *stamp(ev.At)}
	}
	return surface.WriteJSON(w, http.StatusOK, out)
}

// restoreCheckpoint opens a task that goes on where another one broke off, and answers with it.
func restoreCheckpoint(w http.ResponseWriter, r *http.Request) error {
	v := surface.VisitOf(r)
	reach, err := v.Reach(r.Context(), authz.TasksCancel, "")
	if err != nil {
		return err
	}
	id, err := strconv.ParseInt(surface.Param(r, "checkpoint"), 10, 64)
	if err != nil {
		return agentsvc.ErrNotFound
	}
	t, err := v.Restore(r.Context(), reach, agentsvc.TaskID(surface.Param(r, "task")), id)
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusCreated, taskOf(t))
}
