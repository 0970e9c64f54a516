package ops

import (
	"encoding/json"
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/tenancy"
)

// audit answers with a page of the audit trail, the newest entry first, and with what is known to be wrong with its chains.
func (a admin) audit(w http.ResponseWriter, r *http.Request) error {
	f, err := auditFilter(r)
	if err != nil {
		return err
	}
	size, err := surface.PageSize(r, tenancy.PageSize, tenancy.MaxPageSize)
	if err != nil {
		return err
	}
	entries, next, err := a.apps.AuditTrail(r.Context(), tenancy.AuditQuery{AuditFilter: f, Size: size, Token: r.URL.Query().Get("page_token")})
	if err != nil {
		return err
	}
	known, _, err := a.apps.Damages(r.Context(), f.App)
	if err != nil {
		return err
	}
	out := auditList{Entries: make([]entryBody, len(entries)), NextPageToken: next, Flaws: make([]flawBody, len(known))}
	for i, d := range known {
		out.Flaws[i] = flawBody{d.App, d.AppID, d.Seq, d.ID, d.Text, stamp(d.At)}
	}
	for i, e := range entries {
		out.Entries[i] = entryBody{e.ID, stamp(e.At), e.Actor, e.Issuer, e.Action, e.App, string(e.AppID), e.Client, e.Request, e.Detail, e.Seq, e.Hash}
	}
	return surface.WriteJSON(w, http.StatusOK, out)
}

// auditNames are those of the filters of the trail.
var auditNames = []string{"app", "actor", "action", "since", "until"}

// auditFilter reads which entries are asked for.
func auditFilter(r *http.Request) (f tenancy.AuditFilter, err error) {
	q := r.URL.Query()
	f = tenancy.AuditFilter{App: q.Get("app"), Actor: q.Get("actor"), Action: q.Get("action")}
	for field, to := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		if text := q.Get(field); text != "" {
			if *to, err = time.Parse(time.RFC3339, text); err != nil {
				return f, agentsvc.Invalid(field, "must be a time such as 2026-01-31T00:00:00Z")
			}
		}
	}
	return f, nil
}

// exportStall is how long a client may take for the next lines of an export.
const exportStall = 30 * time.Second

// exportAudit answers with the audit trail, a JSON object in each line, as it is read. An answer without a last line that
// says so was cut off.
func (a admin) exportAudit(w http.ResponseWriter, r *http.Request) error {
	f, err := auditFilter(r)
	if err != nil {
		return err
	}
	rc := http.NewResponseController(w)
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	begun := false
	for line, err := range a.apps.Export(r.Context(), f) {
		if err != nil {
			return err
		}
		if !begun {
			w.Header().Set("Content-Type", "application/x-ndjson")
			begun = true
		}
		_ = rc.SetWriteDeadline(time.Now().Add(exportStall)) // not every connection can
		if err := out.Encode(line); err != nil {
			return err
		}
	}
	return nil
}
