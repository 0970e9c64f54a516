package corpus

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/tenancy/db"
)

// Documents keeps a tenant's documents: it stores and deletes uploads, and reads and lists documents of all sources.
type Documents struct {
	rows
	record Recorder // nil = changes are not recorded
}

// Recorder records a change that a caller makes, in the transaction of the change: an error undoes it. o and changed are those
// of [Documents.Put], zero for other changes.
type Recorder func(ctx context.Context, tx *db.Tx, o Outcome, changed document.Document) error

// Recorded returns the same documents, whose changes are recorded by r.
func (d *Documents) Recorded(r Recorder) *Documents { return &Documents{d.rows, r} }

// recordChange records a change, unless changes are not recorded or nothing changed.
func (d *Documents) recordChange(ctx context.Context, t *tx, o Outcome, changed document.Document) error {
	if d.record == nil || o == Unchanged {
		return nil
	}
	return d.record(ctx, t.Tx, o, changed)
}

// documentColumns are the columns of a document d of store $2, for scanDocument.
const documentColumns = `d.id, d.title, d.media_type, d.bytes, d.state, d.error, d.content_hash, d.source_version, d.url, d.metadata, d.access, d.updated_at,
	COALESCE((SELECT l.chunks FROM document_live l WHERE l.tenant = d.tenant AND l.store = d.store AND l.document = d.id AND l.generation = ` + generationSQL + `), 0)`

// scanDocument reads documentColumns, followed by the columns of more.
func scanDocument(r db.Row, store string, more ...any) (document.Document, error) {
	d := document.Document{Store: store}
	var metadata, access string
	var updated int64
	err := r.Scan(append([]any{
		&d.ID, &d.Title, &d.MediaType, &d.Bytes, (*string)(&d.State), &d.Error, &d.ContentHash, &d.SourceVersion, &d.URL, &metadata, &access, &updated, &d.Chunks,
	}, more...)...)
	if err != nil {
		return d, err
	}
	d.UpdatedAt = fromMicros(updated)
	d.Metadata, d.Access, err = decodeMetadata(metadata, access)
	return d, err
}

// Get returns a document that the reader may read; otherwise the error is [agentsvc.ErrNotFound].
func (d *Documents) Get(ctx context.Context, store, id string, reader document.Reader) (document.Document, error) {
	var found []document.Document
	if !isStorableText(store, id) {
		return document.Document{}, agentsvc.ErrNotFound
	}
	err := d.read(ctx, "read a document", func(r db.Row) error {
		one, err := scanDocument(r, store)
		found = append(found, one)
		return err
	}, `SELECT `+documentColumns+` FROM document d WHERE d.tenant = $1 AND d.store = $2 AND d.id = $3 AND `+generationSQL+` IS NOT NULL AND `+d.readableSQL(4),
		append([]any{d.tenant, store, id}, readerArgs(reader)...)...)
	switch {
	case err != nil:
		return document.Document{}, err
	case len(found) == 0:
		return document.Document{}, agentsvc.ErrNotFound
	}
	return found[0], nil
}

// ListFilter selects documents of a list.
type ListFilter struct {
	State  document.State // "" = every state
	Prefix string         // of the id
	After  string         // the id after which the page begins: the last one of the page before
	Size   int            // of the page, at most 1,000; 0 = 100
	Reader document.Reader
}

// maxPage bounds [ListFilter.Size].
const maxPage = 1000

// DocumentPage is a page of documents, ordered by id.
type DocumentPage struct {
	Documents []document.Document
	More      bool
	Total     int64 // that the filter selects, on all pages
}

// List returns a page of the documents that the filter's reader may read. The error is [agentsvc.ErrNotFound] if the store
// does not exist.
func (d *Documents) List(ctx context.Context, store string, f ListFilter) (page DocumentPage, err error) {
	if f.Size <= 0 {
		f.Size = 100
	}
	f.Size = min(f.Size, maxPage)
	if !isStorableText(store) {
		return page, agentsvc.ErrNotFound
	}
	if !isStorableText(f.Prefix, f.After) { // no id has such a text
		return page, nil
	}
	exists := false
	condition := ` FROM document d WHERE d.tenant = $1 AND d.store = $2 AND (CAST($3 AS TEXT) = '' OR d.state = $3) AND SUBSTR(d.id, 1, CAST($4 AS INTEGER)) = $5
		AND d.id >= $5 AND ` + generationSQL + ` IS NOT NULL AND ` + d.readableSQL(6)
	args := append([]any{d.tenant, store, string(f.State), int64(utf8.RuneCountInString(f.Prefix)), f.Prefix}, readerArgs(f.Reader)...)
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&exists) }, `SELECT `+generationSQL+` IS NOT NULL`, d.tenant, store)
	b.Query(func(r db.Row) error { return r.Scan(&page.Total) }, `SELECT COUNT(*)`+condition, args...)
	b.Query(func(r db.Row) error {
		one, err := scanDocument(r, store)
		page.Documents = append(page.Documents, one)
		return err
	}, `SELECT `+documentColumns+condition+` AND d.id > $10 ORDER BY d.id LIMIT $11`, append(args, f.After, int64(f.Size+1))...)
	if err := d.h.Do(ctx, &b); err != nil {
		return DocumentPage{}, fmt.Errorf("list documents: %w", err)
	}
	if !exists {
		return DocumentPage{}, agentsvc.ErrNotFound
	}
	if page.More = len(page.Documents) > f.Size; page.More {
		page.Documents = page.Documents[:f.Size]
	}
	return page, nil
}

// Delete deletes an upload. No search that begins after its return finds it. ifMatch is [Upload.IfMatch]. Errors:
// [agentsvc.ErrNotFound] also if the reader may not read the document, [agentsvc.CodePrecondition], and [agentsvc.CodeState]
// for a store that is filled from its source.
func (d *Documents) Delete(ctx context.Context, store, id, ifMatch string, reader document.Reader) error {
	if !isStorableText(store, id) {
		return agentsvc.ErrNotFound
	}
	return d.runTx(ctx, "delete a document", func(t *tx) error {
		hash, source := "", ""
		found := false
		err := t.Query(ctx, func(r db.Row) error {
			found = true
			return r.Scan(&hash, &source)
		}, `SELECT d.content_hash, (SELECT s.source FROM document_store s WHERE s.tenant = $1 AND s.store = $2) FROM document d
			WHERE d.tenant = $1 AND d.store = $2 AND d.id = $3 AND `+generationSQL+` IS NOT NULL AND `+t.readableSQL(4)+t.lockRow(),
			append([]any{t.tenant, store, id}, readerArgs(reader)...)...)
		switch {
		case err != nil:
			return err
		case !found:
			return agentsvc.ErrNotFound
		case source != uploadSource:
			return newSourceError(store, source)
		case ifMatch != "" && ifMatch != "*" && ifMatch != hash:
			return newHashError(hash)
		}
		if err := t.deleteDocument(ctx, store, id); err != nil {
			return err
		}
		return d.recordChange(ctx, t, "", document.Document{})
	})
}

// ReadBody returns the bytes of an upload that the reader may read; the error is [agentsvc.ErrNotFound] for documents
// of other sources, which are not stored.
func (d *Documents) ReadBody(ctx context.Context, store, id string, reader document.Reader) ([]byte, error) {
	if !isStorableText(store, id) {
		return nil, agentsvc.ErrNotFound
	}
	var body []byte
	found := false
	err := d.read(ctx, "read the body of a document", func(r db.Row) error {
		found = true
		return r.Scan(&body)
	}, `SELECT b.body FROM document d JOIN document_body b ON b.tenant = d.tenant AND b.store = d.store AND b.id = d.id
		WHERE d.tenant = $1 AND d.store = $2 AND d.id = $3 AND `+generationSQL+` IS NOT NULL AND `+d.readableSQL(4),
		append([]any{d.tenant, store, id}, readerArgs(reader)...)...)
	if err == nil && !found {
		err = agentsvc.ErrNotFound
	}
	return body, err
}

// TextSize returns the length in bytes of the text that [Documents.ReadText] returns, at most.
func (d *Documents) TextSize(ctx context.Context, store, id string, reader document.Reader) (size int64, err error) {
	err = d.read(ctx, "read the length of a document's text", func(r db.Row) error { return r.Scan(&size) },
		`SELECT COALESCE(MAX(c.end_at), 0) FROM `+textOfDocument+` AND `+d.readableSQL(4), append([]any{d.tenant, store, id}, readerArgs(reader)...)...)
	return size, err
}

// textOfDocument are the chunks c of the searchable revision of a document d.
const textOfDocument = `document d
		JOIN document_live l ON l.tenant = d.tenant AND l.store = d.store AND l.document = d.id AND l.generation = ` + generationSQL + `
		JOIN chunk c ON c.tenant = l.tenant AND c.store = l.store AND c.document = l.document AND c.generation = l.generation AND c.revision = l.revision
	WHERE d.tenant = $1 AND d.store = $2 AND d.id = $3`

// ReadText returns the text of the searchable revision of a document, joined of its chunks; "" if none was indexed yet.
func (d *Documents) ReadText(ctx context.Context, store, id string, reader document.Reader) (string, error) {
	if _, err := d.Get(ctx, store, id, reader); err != nil {
		return "", err
	}
	var text strings.Builder
	end := int64(0)
	err := d.read(ctx, "read the text of a document", func(r db.Row) error {
		var from, to int64
		var part string
		if err := r.Scan(&from, &to, &part); err != nil {
			return err
		}
		joinText(&text, part, from, end)
		end = max(end, to)
		return nil
	}, `SELECT c.start_at, c.end_at, c.text FROM `+textOfDocument+` AND `+d.readableSQL(4)+` ORDER BY c.ordinal`,
		append([]any{d.tenant, store, id}, readerArgs(reader)...)...)
	return text.String(), err
}

// joinText appends the text of a chunk that begins at byte from of its document, of which text has the bytes before end:
// without what overlaps, or behind a line break where something was left out between the two.
func joinText(text *strings.Builder, part string, from, end int64) {
	overlap := end - from
	switch {
	case text.Len() == 0 || overlap == 0:
	case overlap < 0:
		text.WriteString("\n")
	case overlap < int64(len(part)) && utf8.RuneStart(part[overlap]):
		part = part[overlap:]
	case overlap >= int64(len(part)):
		return
	}
	text.WriteString(part)
}
