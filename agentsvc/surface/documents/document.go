package documents

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/response"
)

// Sizes of a page of documents.
const (
	defaultPageSize = 100
	maxPageSize     = 1000
)

// handleListDocuments answers with a page of the documents that the caller may read, ordered by id.
func handleListDocuments(w http.ResponseWriter, r *http.Request) error {
	filter, err := parseListFilter(r)
	if err != nil {
		return err
	}
	c, err := newCall(r)
	if err != nil {
		return err
	}
	filter.Reader = c.reader
	page, err := c.stores.Rows.Documents.List(r.Context(), c.store.Name, filter)
	if err != nil && !errors.Is(err, agentsvc.CodeNotFound) { // not found: the indexer has not created the store's rows yet
		return err
	}
	out := listEnd{TotalSize: page.Total}
	if page.More {
		out.NextPageToken = newPageToken(page.Documents[len(page.Documents)-1].ID)
	}
	items := func(yield func(documentBody) bool) {
		for _, d := range page.Documents {
			if !yield(newDocumentBody(d, c.reader)) {
				return
			}
		}
	}
	return response.WriteList(r.Context(), string(surface.RequestOf(r).App.ID), w, "documents", items, out)
}

// parseListFilter returns what the query selects.
func parseListFilter(r *http.Request) (f corpus.ListFilter, err error) {
	q := r.URL.Query()
	if f.Size, err = decode.ParsePageSize(r, defaultPageSize, maxPageSize); err != nil {
		return f, err
	}
	if token := q.Get("page_token"); token != "" {
		if f.After, err = parsePageToken(token); err != nil {
			return f, err
		}
	}
	f.State = document.State(q.Get("state"))
	states := []document.State{"", document.Pending, document.Indexed, document.Failed, document.Deleting}
	if !slices.Contains(states, f.State) {
		return f, agentsvc.NewInvalidError("state", "must be pending, indexed, failed or deleting")
	}
	if f.Prefix = q.Get("prefix"); f.Prefix != "" {
		err = checkDocumentID("prefix", f.Prefix)
	}
	return f, err
}

// tokenPrefix begins the content of a page token.
const tokenPrefix = "after:"

// newPageToken returns the token of the page after a document.
func newPageToken(id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(tokenPrefix + id))
}

// parsePageToken returns the id after which the page of a token begins.
func parsePageToken(token string) (string, error) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	id, ok := strings.CutPrefix(string(raw), tokenPrefix)
	if err != nil || !ok || checkDocumentID("", id) != nil {
		return "", agentsvc.NewInvalidError("page_token", "is not a token of this list")
	}
	return id, nil
}

// maxDocumentID bounds the id of a document, in bytes.
const maxDocumentID = 512

// checkDocumentID returns an error for an id that is too long or that cannot be printed. "." and ".." are refused, since
// clients and proxies remove them from a path.
func checkDocumentID(field, id string) error {
	switch {
	case id == "" || len(id) > maxDocumentID:
		return agentsvc.NewInvalidError(field, "must be 1 to %d bytes long", maxDocumentID)
	case !utf8.ValidString(id) || strings.ContainsFunc(id, func(c rune) bool { return !unicode.IsPrint(c) }):
		return agentsvc.NewInvalidError(field, "must be text without control characters")
	case id == "." || id == "..":
		return agentsvc.NewInvalidError(field, "must name a document")
	}
	return nil
}

// newDocumentCall returns the call for the store and the id of the document in the path.
func newDocumentCall(r *http.Request) (c call, id string, err error) {
	id = surface.PathParam(r, "document")
	if err := checkDocumentID("document", id); err != nil {
		return c, "", err
	}
	c, err = newCall(r)
	return c, id, err
}

// handleGetDocument answers with a document's record.
func handleGetDocument(w http.ResponseWriter, r *http.Request) error {
	c, id, err := newDocumentCall(r)
	if err != nil {
		return err
	}
	d, err := c.stores.Rows.Documents.Get(r.Context(), c.store.Name, id, c.reader)
	if err != nil {
		return err
	}
	setContentTag(w, d)
	return response.WriteJSON(w, http.StatusOK, newDocumentBody(d, c.reader))
}

// setContentTag sets the ETag that If-Match takes: the hash of the document's content.
func setContentTag(w http.ResponseWriter, d document.Document) {
	if d.ContentHash != "" {
		w.Header().Set("ETag", strconv.Quote(d.ContentHash))
	}
}

// originalType is the media type for which handleGetContent answers with the bytes that were uploaded.
const originalType = "application/octet-stream"

// handleGetContent answers with the text of a document as it is searched, or with the bytes that were uploaded if the
// client accepts [originalType] first. Of an upload that is text itself it answers with these bytes as well until it is
// indexed.
func handleGetContent(w http.ResponseWriter, r *http.Request) error {
	c, id, err := newDocumentCall(r)
	if err != nil {
		return err
	}
	ctx, rows := r.Context(), c.stores.Rows.Documents
	d, err := rows.Get(ctx, c.store.Name, id, c.reader)
	if err != nil {
		return err
	}
	w.Header().Add("Vary", "Accept")
	if err := surface.MemoryOf(r).ReserveTotal(ctx, d.Bytes); err != nil {
		return err
	}
	isUpload := c.store.Config.Source.Type == uploadSource
	if acceptsOriginal(r) {
		if !isUpload {
			return agentsvc.NewError(agentsvc.CodePrecondition, "the documents of a source of type %s are not stored here: read the text, with Accept: text/plain", c.store.Config.Source.Type)
		}
		content, err := rows.ReadBody(ctx, c.store.Name, id, c.reader)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Disposition", "attachment")
		return response.WriteContent(w, originalType, content)
	}
	// The text of a compressed file is longer than the file.
	size, err := rows.TextSize(ctx, c.store.Name, id, c.reader)
	if err != nil {
		return err
	}
	if err := surface.MemoryOf(r).ReserveTotal(ctx, size); err != nil {
		return err
	}
	text, err := rows.ReadText(ctx, c.store.Name, id, c.reader)
	if err != nil {
		return err
	}
	if text == "" && isUpload {
		content, err := rows.ReadBody(ctx, c.store.Name, id, c.reader)
		if err != nil {
			return err
		}
		if utf8.Valid(content) && !bytes.Contains(content, []byte{0}) {
			text = string(content)
		}
	}
	if text == "" && d.State != document.Indexed {
		return agentsvc.NewError(agentsvc.CodePrecondition, "the document has no text yet: its state is %s", d.State)
	}
	return response.WriteContent(w, "text/plain; charset=utf-8", []byte(text))
}

// acceptsOriginal reports whether the first media type in Accept that the endpoint has is [originalType].
func acceptsOriginal(r *http.Request) bool {
	for accepted := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		switch kind, _, _ := strings.Cut(accepted, ";"); strings.ToLower(strings.TrimSpace(kind)) {
		case originalType:
			return true
		case "text/plain", "text/*", "*/*":
			return false
		}
	}
	return false
}

// handleDeleteDocument deletes an uploaded document: no search that begins after the answer finds it.
func handleDeleteDocument(w http.ResponseWriter, r *http.Request) error {
	c, id, err := newDocumentCall(r)
	if err != nil {
		return err
	}
	if err := c.checkUploads("delete"); err != nil {
		return err
	}
	tag, err := parseContentTag(r)
	if err != nil {
		return err
	}
	recorded := c.recorded("document.delete", id, map[string]any{})
	if err := recorded.Delete(r.Context(), c.store.Name, id, tag, c.reader); err != nil {
		return err
	}
	c.stores.NotifyChanged() // external vector stores have the vectors still
	w.WriteHeader(http.StatusNoContent)
	return nil
}
