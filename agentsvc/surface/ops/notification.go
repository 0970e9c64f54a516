package ops

import (
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/authz"
)

// handleListNotifications answers with who is told of a task and whether that goes well, never where. What the app itself has told is
// not the business of the task's owner.
func handleListNotifications(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	visibility, err := v.ResolveVisibility(r.Context(), authz.TasksRead, "")
	if err != nil {
		return err
	}
	all, err := v.Tasks().ListReceivers(r.Context(), visibility, agentsvc.TaskID(surface.PathParam(r, "task")))
	if err != nil {
		return err
	}
	out := notificationList{Notifications: []notificationBody{}}
	for _, c := range all {
		if c.IsStanding() && visibility.Owner != nil {
			continue
		}
		out.Notifications = append(out.Notifications, notificationBody{c.PublicID(), c.Format, string(c.State), c.Attempts, c.Error, *formatTime(c.Created)})
	}
	return surface.WriteJSON(w, http.StatusOK, out)
}
