package admin

import (
	"encoding/json"
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/response"
	"stoa/tenancy"
	"stoa/tenancy/audit"
)

// auditHandler serves the audit trail. It is read-only and used by value.
type auditHandler struct {
	apps *tenancy.Service
}

// handleAudit answers with a page of the audit trail, the newest entry first, and with the known flaws of its hash
// chains.
func (h auditHandler) handleAudit(w http.ResponseWriter, r *http.Request) error {
	f, err := parseAuditFilter(r)
	if err != nil {
		return err
	}
	size, err := decode.ParsePageSize(r, tenancy.DefaultPageSize, tenancy.MaxPageSize)
	if err != nil {
		return err
	}
	entries, next, err := h.apps.Trail.List(r.Context(), audit.Query{Filter: f, Size: size, Token: r.URL.Query().Get("page_token")})
	if err != nil {
		return err
	}
	// Flaws are searched in the background; this only reads what was found.
	known, _, err := h.apps.Trail.ListFlaws(r.Context(), f.App)
	if err != nil {
		return err
	}
	out := auditList{Entries: make([]entryBody, len(entries)), NextPageToken: next, Flaws: make([]flawBody, len(known))}
	for i, d := range known {
		out.Flaws[i] = flawBody{d.App, d.AppID, d.Seq, d.ID, d.Text, encode.FormatOptionalTime(d.At)}
	}
	for i, e := range entries {
		out.Entries[i] = entryBody{e.ID, encode.FormatOptionalTime(e.At), e.Actor.Name, e.Actor.Issuer, e.Action, e.App, string(e.AppID), e.Actor.Client, e.Actor.Request, e.Detail, e.Seq, e.Hash}
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// auditParams are the query parameters that select audit entries.
var auditParams = []string{"app", "actor", "action", "since", "until"}

// parseAuditFilter parses the query parameters of auditParams. since is inclusive, until exclusive.
func parseAuditFilter(r *http.Request) (f audit.Filter, err error) {
	q := r.URL.Query()
	f = audit.Filter{App: q.Get("app"), Actor: q.Get("actor"), Action: q.Get("action")}
	for field, to := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		if text := q.Get(field); text != "" {
			if *to, err = time.Parse(time.RFC3339, text); err != nil {
				return f, agentsvc.NewInvalidError(field, "must be a time such as 2026-01-31T00:00:00Z")
			}
		}
	}
	return f, nil
}

// exportLineTimeout is how long a client may take to accept one line of an export. The export as a whole has no
// deadline, because a trail may be of any size.
const exportLineTimeout = 30 * time.Second

// handleExportAudit writes the audit trail as JSON lines while it is read, so that its size does not matter for
// memory. The last line is the end marker of [audit.Trail.Export]; an export without it was cut off by an
// error, which cannot be reported otherwise after the status has been sent.
func (h auditHandler) handleExportAudit(w http.ResponseWriter, r *http.Request) error {
	f, err := parseAuditFilter(r)
	if err != nil {
		return err
	}
	rc := http.NewResponseController(w)
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	started := false
	for line, err := range h.apps.Trail.Export(r.Context(), f) {
		if err != nil {
			return err
		}
		// The status is sent with the first line, so that an error before it is still an HTTP error.
		if !started {
			w.Header().Set("Content-Type", "application/x-ndjson")
			started = true
		}
		// A client that stops reading must not keep the export open for good. The error is ignored, because not
		// every connection supports deadlines.
		_ = rc.SetWriteDeadline(time.Now().Add(exportLineTimeout))
		if err := out.Encode(line); err != nil {
			return err
		}
	}
	return nil
}
