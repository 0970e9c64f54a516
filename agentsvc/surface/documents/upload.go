package documents

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/mutation"
	"stoa/agentsvc/surface/response"
)

// uploadSource is the type of source whose documents callers upload.
const uploadSource = "upload"

// storeTimeout bounds the storing of an upload, once it has arrived.
const storeTimeout = 30 * time.Second

// Bounds of an upload.
const (
	maxDocument = 20 << 20 // bytes
	maxTitle    = 1000     // bytes
)

// handlePutDocument stores the document in the body, which is the file itself or a form with one part named file. It
// answers 202 if the document is indexed anew, and 200 if its text is the same as before.
func handlePutDocument(w http.ResponseWriter, r *http.Request) error {
	c, id, err := newDocumentCall(r)
	if err != nil {
		return err
	}
	if err := c.checkUploads("upload"); err != nil {
		return err
	}
	upload, err := readUpload(r, id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	var stored document.Document
	var outcome corpus.Outcome
	recorded := c.recorded("document.put", id, map[string]any{})
	err = c.withStore(ctx, func() error {
		stored, outcome, err = recorded.Put(ctx, c.store.Name, upload)
		return err
	})
	if err != nil {
		return err
	}
	setContentTag(w, stored)
	status := http.StatusOK
	if outcome == corpus.Created || outcome == corpus.Changed {
		status = http.StatusAccepted
	}
	return response.WriteJSON(w, status, storedDocument{newDocumentBody(stored, c.reader), string(outcome)})
}

// checkUploads returns an error if the store's documents come from elsewhere: what is done to them here would be undone
// when its source is read again.
func (c call) checkUploads(action string) error {
	kind := c.store.Config.Source.Type
	if kind == uploadSource {
		return nil
	}
	return agentsvc.NewError(agentsvc.CodePrecondition,
		"cannot %s documents of %q: its source is of type %s, and its documents are those of the source. Only stores whose source is of type upload take documents", action, c.store.Name, kind)
}

// readUpload reads the request's headers and its body.
func readUpload(r *http.Request, id string) (u corpus.Upload, err error) {
	u.ID = id
	if u.IfMatch, err = parseContentTag(r); err != nil {
		return u, err
	}
	if u.Title, err = parseTitle(r.Header.Get(titleHeader)); err != nil {
		return u, err
	}
	if err := parseHeaderJSON(r, metadataHeader, "a JSON object of texts, such as {\"year\": \"2026\"}", &u.Metadata); err != nil {
		return u, err
	}
	if err := parseHeaderJSON(r, accessHeader, "a JSON object with lists of texts, such as {\"subjects\": [\"ana\"], \"roles\": [\"sales\"]}", &u.Access); err != nil {
		return u, err
	}
	kind, params, err := parseMediaType("Content-Type", r.Header.Get("Content-Type"))
	if err != nil {
		return u, err
	}
	body, err := surface.ReadFile(r)
	if err != nil {
		return u, err
	}
	u.MediaType, u.Body = withCharset(kind, params), body
	if kind == "multipart/form-data" {
		if u.MediaType, u.Body, err = readForm(body, params["boundary"]); err != nil {
			return u, err
		}
	}
	switch {
	case len(u.Body) == 0:
		return u, agentsvc.NewInvalidError("body", "is empty: it must be the document")
	case len(u.Body) > maxDocument:
		return u, agentsvc.NewError(agentsvc.CodeTooLarge, "the document has %d bytes, %d MiB are allowed", len(u.Body), maxDocument>>20)
	}
	return u, nil
}

// parseContentTag returns the tag in If-Match, "*" for any document that exists, "" for none.
func parseContentTag(r *http.Request) (string, error) {
	if strings.TrimSpace(r.Header.Get("If-Match")) == "*" {
		return "*", nil
	}
	tags, err := mutation.ParseIfMatch(r)
	switch {
	case err != nil:
		return "", err
	case len(tags) > 1:
		return "", agentsvc.NewInvalidError("If-Match", "must be one ETag")
	case len(tags) == 1:
		return tags[0], nil
	}
	return "", nil
}

// parseTitle returns a title, in which a client may have encoded words that HTTP headers cannot have (RFC 2047).
func parseTitle(given string) (string, error) {
	title, err := new(mime.WordDecoder).DecodeHeader(given)
	if err != nil || !utf8.ValidString(title) || len(title) > maxTitle || strings.ContainsFunc(title, unicode.IsControl) {
		return "", agentsvc.NewInvalidError(titleHeader, "must be at most %d bytes of text in UTF-8, without control characters", maxTitle)
	}
	return strings.TrimSpace(title), nil
}

// parseHeaderJSON decodes the JSON object in a header into v, nothing if there is no such header. want is what it must be.
func parseHeaderJSON(r *http.Request, name, want string, v any) error {
	given := r.Header.Get(name)
	if given == "" {
		return nil
	}
	err := decode.JSON([]byte(given), v, true)
	var invalid *agentsvc.Error
	if errors.As(err, &invalid) {
		return agentsvc.NewInvalidError(name, "must be %s: %s", want, invalid.Error())
	}
	return err
}

// parseMediaType returns the media type of a document, "" if the client does not know it: the indexer then decides by the
// name and the content.
func parseMediaType(field, given string) (kind string, params map[string]string, err error) {
	if given == "" {
		return "", nil, nil
	}
	kind, params, err = mime.ParseMediaType(given)
	switch {
	case err != nil:
		return "", nil, agentsvc.NewInvalidError(field, "is not a media type")
	// What clients send that do not know what they send.
	case kind == originalType, kind == "application/x-www-form-urlencoded":
		return "", nil, nil
	}
	return kind, params, nil
}

// withCharset returns a media type with its charset, if that is none that readers of text assume.
func withCharset(kind string, params map[string]string) string {
	charset := strings.ToLower(params["charset"])
	if charset == "" || charset == "utf-8" || charset == "us-ascii" {
		return kind
	}
	return mime.FormatMediaType(kind, map[string]string{"charset": charset})
}

// formField is the name of the part of a form that has the document.
const formField = "file"

// readForm returns the content of the only part of a form.
func readForm(body []byte, boundary string) (kind string, content []byte, err error) {
	malformed := agentsvc.NewInvalidError("body", "must be multipart/form-data with one part named %s", formField)
	if boundary == "" {
		return "", nil, malformed
	}
	form := multipart.NewReader(bytes.NewReader(body), boundary)
	part, err := form.NextRawPart()
	if err != nil || part.FormName() != formField {
		return "", nil, malformed
	}
	kind, params, err := parseMediaType("body", part.Header.Get("Content-Type"))
	if err != nil {
		return "", nil, err
	}
	to := bytes.NewBuffer(make([]byte, 0, len(body)))
	if _, err := io.Copy(to, part); err != nil {
		return "", nil, malformed
	}
	if _, err := form.NextRawPart(); !errors.Is(err, io.EOF) {
		return "", nil, malformed
	}
	return withCharset(kind, params), to.Bytes(), nil
}
