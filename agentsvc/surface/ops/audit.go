package ops

import (
	"encoding/json"
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/tenancy"
)

// handleAudit answers with a page of the audit trail, the newest entry first, and with what is known to be wrong with its chains.
func (a adminAPI) handleAudit(w http.ResponseWriter, r *http.Request) error {
	f, err := parseAuditFilter(r)
	if err != nil {
		return err
	}
	size, err := surface.ParsePageSize(r, tenancy.DefaultPageSize, tenancy.MaxPageSize)
	if err != nil {
		return err
	}
	entries, next, err := a.apps.ListAuditEntries(r.Context(), tenancy.AuditQuery{AuditFilter: f, Size: size, Token: r.URL.Query().Get("page_token")})
	if err != nil {
		return err
	}
	known, _, err := a.apps.ListFoundFlaws(r.Context(), f.App)
	if err != nil {
		return err
	}
	out := auditList{Entries: make([]entryBody, len(entries)), NextPageToken: next, Flaws: make([]flawBody, len(known))}
	for i, d := range known {
		out.Flaws[i] = flawBody{d.App, d.AppID, d.Seq, d.ID, d.Text, formatTime(d.At)}
	}
	for i, e := range entries {
		out.Entries[i] = entryBody{e.ID, formatTime(e.At), e.Actor, e.Issuer, e.Action, e.App, string(e.AppID), e.Client, e.Request, e.Detail, e.Seq, e.Hash}
	}
	return surface.WriteJSON(w, http.StatusOK, out)
}

// auditParams are those of the filters of the trail.
var auditParams = []string{"app", "actor", "action", "since", "until"}

// parseAuditFilter reads which entries are asked for.
func parseAuditFilter(r *http.Request) (f tenancy.AuditFilter, err error) {
	q := r.URL.Query()
	f = tenancy.AuditFilter{App: q.Get("app"), Actor: q.Get("actor"), Action: q.Get("action")}
	for field, to := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		if text := q.Get(field); text != "" {
			if *to, err = time.Parse(time.RFC3339, text); err != nil {
				return f, agentsvc.NewInvalidError(field, "must be a time such as 2026-01-31T00:00:00Z")
			}
		}
	}
	return f, nil
}

// exportLineTimeout is how long a client may take for the next lines of an export.
const exportLineTimeout = 30 * time.Second

// handleExportAudit answers with the audit trail, a JSON object in each line, as it is read. An answer without a last line that
// says so was cut off.
func (a adminAPI) handleExportAudit(w http.ResponseWriter, r *http.Request) error {
	f, err := parseAuditFilter(r)
	if err != nil {
		return err
	}
	rc := http.NewResponseController(w)
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	started := false
	for line, err := range a.apps.ExportTrail(r.Context(), f) {
		if err != nil {
			return err
		}
		if !started {
			w.Header().Set("Content-Type", "application/x-ndjson")
			started = true
		}
		_ = rc.SetWriteDeadline(time.Now().Add(exportLineTimeout)) // not every connection can
		if err := out.Encode(line); err != nil {
			return err
		}
	}
	return nil
}
