package tenantapi

import (
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/response"
	"stoa/authz"
)

// handleListNotifications answers with the receivers of a task's notifications and the state of their deliveries,
// without addresses. Receivers that the app's configuration sets for all tasks are only shown to callers that may
// read the app's tasks.
func handleListNotifications(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	visibility, err := v.ResolveVisibility(r.Context(), authz.TasksRead, "")
	if err != nil {
		return err
	}
	all, err := v.Tasks.Receivers.List(r.Context(), visibility, agentsvc.TaskID(surface.PathParam(r, "task")))
	if err != nil {
		return err
	}
	out := notificationList{Notifications: []notificationBody{}}
	for _, c := range all {
		// The caller sees its own tasks only, so it is a user and not an operator of the app.
		if c.IsStanding() && visibility.Owner != nil {
			continue
		}
		out.Notifications = append(out.Notifications, notificationBody{c.PublicID(), c.Format, string(c.State), c.Attempts, c.Error, *encode.FormatOptionalTime(c.Created)})
	}
	return response.WriteJSON(w, http.StatusOK, out)
}
