package admin

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/response"
	"stoa/tenancy/transfer"
)

// transferHandler serves exports and imports of apps. It is read-only and used by value.
type transferHandler struct {
	transfer *transfer.Service
}

// passphraseHeader has the passphrase of a file in base64. It is no query parameter, because logs have addresses.
const passphraseHeader = "X-Passphrase"

// parsePassphrase returns the passphrase of a request.
func parsePassphrase(r *http.Request) (string, error) {
	text, err := base64.StdEncoding.DecodeString(r.Header.Get(passphraseHeader))
	if err != nil || len(text) == 0 {
		return "", agentsvc.NewInvalidError("passphrase", "the header %s must have it in base64", passphraseHeader)
	}
	return string(text), nil
}

// handleExportApp writes an app to the response while its rows are read. The file is complete only with its last line: an
// error after the first byte cannot be reported otherwise.
func (h transferHandler) handleExportApp(w http.ResponseWriter, r *http.Request) error {
	passphrase, err := parsePassphrase(r)
	if err != nil {
		return err
	}
	_, err = h.transfer.Export(r.Context(), surface.ActorOf(r), surface.PathParam(r, "app"), passphrase, &fileResponse{ResponseWriter: w})
	return err
}

// fileResponse is a response of lines, whose status is sent with the first of them.
type fileResponse struct {
	http.ResponseWriter
	started bool
}

// Write implements [io.Writer]. A client that stops reading must not keep the export open for good.
func (f *fileResponse) Write(content []byte) (int, error) {
	if !f.started {
		f.started = true
		f.Header().Set("Content-Type", "application/x-ndjson")
	}
	// Not every connection supports deadlines.
	_ = http.NewResponseController(f.ResponseWriter).SetWriteDeadline(time.Now().Add(exportLineTimeout))
	return f.ResponseWriter.Write(content)
}

// importedBody is the answer of an import.
type importedBody struct {
	App     appBody          `json:"app"`
	Rows    map[string]int64 `json:"rows"`    // by table
	Dropped map[string]int64 `json:"dropped"` // by table; see [transfer.Summary]
	Digest  string           `json:"digest"`
}

// handleImportApp makes the app in the body one of this installation. It honours no Idempotency-Key: a repetition is
// answered 409, since the app exists.
func (h transferHandler) handleImportApp(w http.ResponseWriter, r *http.Request) error {
	passphrase, err := parsePassphrase(r)
	if err != nil {
		return err
	}
	s, err := h.transfer.Import(r.Context(), surface.ActorOf(r), passphrase, transfer.Grants(r.URL.Query().Get("grants")), r.Body)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/admin/apps/"+url.PathEscape(s.App.Name))
	return response.WriteJSON(w, http.StatusCreated, importedBody{newAppBody(s.App), s.Rows, s.Dropped, s.Digest})
}
