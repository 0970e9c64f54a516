package ops

import (
	"net/http"

	"stoa/agentsvc/surface"
	"stoa/tenancy"
)

// audit answers with a page of the audit trail, the newest entry first.
func (a admin) audit(w http.ResponseWriter, r *http.Request) error {
	size, err := surface.PageSize(r, tenancy.PageSize, tenancy.MaxPageSize)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	entries, next, err := a.apps.AuditTrail(r.Context(), tenancy.AuditQuery{
		App: q.Get("app"), Actor: q.Get("actor"), Size: size, Token: q.Get("page_token"),
	})
	if err != nil {
		return err
	}
	out := auditList{Entries: make([]entryBody, len(entries)), NextPageToken: next}
	for i, e := range entries {
		out.Entries[i] = entryBody{e.ID, stamp(e.At), e.Actor, e.Action, e.App, string(e.AppID), e.Detail}
	}
	return surface.WriteJSON(w, http.StatusOK, out)
}
