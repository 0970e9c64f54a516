package ops

import (
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/authz"
)

// listNotifications answers with who is told of a task and whether that goes well, never where. What the app itself has told is
// not the business of the task's owner.
func listNotifications(w http.ResponseWriter, r *http.Request) error {
	v := surface.VisitOf(r)
	reach, err := v.Reach(r.Context(), authz.TasksRead, "")
	if err != nil {
		return err
	}
	all, err := v.Tasks().Receivers(r.Context(), reach, agentsvc.TaskID(surface.Param(r, "task")))
	if err != nil {
		return err
	}
	out := notificationList{Notifications: []notificationBody{}}
	for _, c := range all {
		if c.Standing() && reach.Owner != nil {
			continue
		}
		out.Notifications = append(out.Notifications, notificationBody{c.Name(), c.Form, string(c.State), c.Attempts, c.Error, *stamp(c.Created)})
	}
	return surface.WriteJSON(w, http.StatusOK, out)
}
