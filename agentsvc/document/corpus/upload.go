package corpus

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/tenancy/db"
)

// uploadSource is the type of the source of stores that callers fill.
const uploadSource = "upload"

// Upload is a document that a caller stores. ID, the key in the store, has at most 512 bytes.
type Upload struct {
	ID        string
	Title     string
	MediaType string
	URL       string
	Body      []byte
	Metadata  map[string]string
	Access    document.Access
	// IfMatch, if not empty, is the content hash that the document must have; "*" means that it must exist.
	IfMatch string
	// IfNoneMatch means that the document must not exist.
	IfNoneMatch bool
}

// Outcome is what a write did to a document.
type Outcome string

// The outcomes. All but Created and Changed leave the indexed text as it is.
const (
	Created   Outcome = "created"
	Changed   Outcome = "changed"   // the content, the media type or the title: it is indexed again
	Updated   Outcome = "updated"   // metadata, URL or access alone, which take effect at once
	Unchanged Outcome = "unchanged" // nothing was written
)

// Put stores an upload and requests a pass. Uploading the same content again changes nothing, unless its indexing failed:
// then it is tried again. The version before stays searchable until the new one is indexed, except where the new one may
// be read by others: then it is hidden at once, because they must not read the old text.
//
// Errors: [agentsvc.CodeNotFound] (the store does not exist), [agentsvc.CodeState] (it is filled from its source),
// [agentsvc.CodeInvalid], [agentsvc.CodePrecondition], [agentsvc.CodeExhausted] naming the limit.
func (d *Documents) Put(ctx context.Context, store string, u Upload) (doc document.Document, outcome Outcome, err error) {
	if !isStorableText(store) {
		return doc, "", agentsvc.ErrNotFound
	}
	sum := sha256.Sum256(u.Body)
	next, err := newDocumentRow(Listed{
		ID: u.ID, Title: u.Title, MediaType: u.MediaType, Bytes: int64(len(u.Body)), URL: u.URL, Metadata: u.Metadata, Access: u.Access,
	}, true)
	if err != nil {
		return doc, "", err
	}
	next.hash = hex.EncodeToString(sum[:])
	if next.bytes > d.limits.DocumentBytes {
		return doc, "", newLimitError(limitDocumentBytes, "the document has %s, one may have %s", agentsvc.FormatBytes(next.bytes), agentsvc.FormatBytes(d.limits.DocumentBytes))
	}
	err = d.runTx(ctx, "store a document", func(t *tx) error {
		if doc, outcome, err = t.putUpload(ctx, store, u, next); err != nil {
			return err
		}
		return d.recordChange(ctx, t, outcome, doc)
	})
	return doc, outcome, err
}

// putUpload carries out [Documents.Put].
func (t *tx) putUpload(ctx context.Context, store string, u Upload, next documentRow) (doc document.Document, outcome Outcome, err error) {
	if err := t.lockTenant(ctx); err != nil {
		return doc, "", err
	}
	source, err := t.readSource(ctx, store)
	if err != nil {
		return doc, "", err
	}
	if source != uploadSource {
		return doc, "", newSourceError(store, source)
	}
	before, err := t.readDocuments(ctx, store, next.id)
	if err != nil {
		return doc, "", err
	}
	old, exists := before[next.id]
	switch {
	case u.IfNoneMatch && exists:
		return doc, "", agentsvc.NewError(agentsvc.CodePrecondition, "the document exists")
	case u.IfMatch != "" && !exists:
		return doc, "", agentsvc.NewError(agentsvc.CodePrecondition, "the document does not exist")
	case u.IfMatch != "" && u.IfMatch != "*" && u.IfMatch != old.hash:
		return doc, "", newHashError(old.hash)
	}
	if exists && old.hash == next.hash { // what indexing has found out stays
		next.title, next.mediaType = cmp.Or(next.title, old.title), cmp.Or(next.mediaType, old.mediaType)
	}
	isChanged := !exists || old.hash != next.hash || old.title != next.title || old.mediaType != next.mediaType || old.state == string(document.Failed)
	if isChanged {
		err := t.checkUploads(ctx, next.bytes-old.bytes, exists)
		if err == nil {
			err = t.h.CheckQuota(next.bytes+next.textSize(), db.StoresNew)
		}
		if err == nil {
			err = t.requestPass(ctx, store)
		}
		if err != nil {
			return doc, "", err
		}
		_, err = t.Exec(ctx, `INSERT INTO document_body (tenant, store, id, body) VALUES ($1, $2, $3, $4)
			ON CONFLICT (tenant, store, id) DO UPDATE SET body = excluded.body`, t.tenant, store, next.id, append([]byte{}, u.Body...))
		if err != nil {
			return doc, "", err
		}
	}
	if outcome, err = t.writeDocument(ctx, store, old, next, exists, isChanged); err != nil {
		return doc, "", err
	}
	err = t.Query(ctx, func(r db.Row) error {
		doc, err = scanDocument(r, store)
		return err
	}, `SELECT `+documentColumns+` FROM document d WHERE d.tenant = $1 AND d.store = $2 AND d.id = $3`, t.tenant, store, next.id)
	return doc, outcome, err
}

// readSource returns the type of a store's source, or [agentsvc.ErrNotFound].
func (t *tx) readSource(ctx context.Context, store string) (source string, err error) {
	found := false
	err = t.Query(ctx, func(r db.Row) error {
		found = true
		return r.Scan(&source)
	}, `SELECT source FROM document_store WHERE tenant = $1 AND store = $2 AND state = ''`, t.tenant, store)
	if err == nil && !found {
		err = agentsvc.ErrNotFound
	}
	return source, err
}

// checkUploads returns an error if bytes more in bodies, and one more document unless it exists, exceed the tenant's limits.
func (t *tx) checkUploads(ctx context.Context, bytes int64, exists bool) error {
	var documents, stored int64
	err := t.Query(ctx, func(r db.Row) error { return r.Scan(&documents, &stored) },
		`SELECT CAST(COALESCE(SUM(documents), 0) AS BIGINT), CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM document_total WHERE tenant = $1 AND generation = 0`, t.tenant)
	switch {
	case err != nil:
		return err
	case !exists && documents >= t.limits.Documents:
		return newLimitError(limitDocuments, "the app has %d documents, as many as it may have: delete some", documents)
	case bytes > 0 && stored+bytes > t.limits.BodyBytes:
		return newLimitError(limitBodyBytes, "the documents of the app have %s and may have %s: delete some", agentsvc.FormatBytes(stored), agentsvc.FormatBytes(t.limits.BodyBytes))
	}
	return nil
}

// documentRow is what a source or a caller says of a document, as it is stored.
type documentRow struct {
	id, title, mediaType, hash, version, url string
	metadata, access                         string // JSON
	readers                                  []documentReader
	bytes                                    int64
	state                                    string // of a row that was read
}

// documentReader is a row of document_reader.
type documentReader struct{ kind, name string }

// textSize is what a row stores besides its body.
func (d documentRow) textSize() int64 { return int64(len(d.title) + len(d.metadata) + len(d.access)) }

// readDocuments reads and locks rows of documents by id, in the order of their ids.
func (t *tx) readDocuments(ctx context.Context, store string, ids ...string) (map[string]documentRow, error) {
	found := map[string]documentRow{}
	err := t.Query(ctx, func(r db.Row) error {
		var d documentRow
		err := r.Scan(&d.id, &d.title, &d.mediaType, &d.bytes, &d.state, &d.hash, &d.version, &d.url, &d.metadata, &d.access)
		found[d.id] = d
		return err
	}, t.lockDocumentsSQL(), t.tenant, store, encodeJSON(slices.Sorted(slices.Values(ids))))
	return found, err
}

// lockDocumentsSQL selects the documents of $1 and $2 whose ids are in $3, a sorted array. PostgreSQL locks them one after the
// other, each found by its whole key: for a condition on a list it compares every document of the store with the list, since
// without statistics of the table it expects one.
func (t *tx) lockDocumentsSQL() string {
	const columns = `id, title, media_type, bytes, state, content_hash, source_version, url, metadata, access`
	if t.h.Engine() == db.SQLite {
		return `SELECT ` + columns + ` FROM document WHERE tenant = $1 AND store = $2 AND ` + t.inList("id", "$3")
	}
	return `SELECT d.* FROM jsonb_array_elements_text(CAST(CAST($3 AS TEXT) AS jsonb)) AS x (key)
		CROSS JOIN LATERAL (SELECT ` + columns + ` FROM document WHERE tenant = $1 AND store = $2 AND id = x.key FOR UPDATE) d`
}

// writeDocument writes a document and its readers. With isChanged it gets a new revision and waits for its indexing.
func (t *tx) writeDocument(ctx context.Context, store string, old, next documentRow, exists, isChanged bool) (Outcome, error) {
	isAccessChanged := !exists || old.access != next.access
	if !isChanged && !isAccessChanged && old.metadata == next.metadata && old.url == next.url {
		return Unchanged, nil
	}
	// $3 id, $4 title, $5 media type, $6 bytes, $7 hash, $8 version, $9 url, $10 metadata, $11 access, $12 open, $13 revision
	args := []any{
		t.tenant, store, next.id, next.title, next.mediaType, next.bytes, next.hash, next.version, next.url, next.metadata, next.access, len(next.readers) == 0, newRevision(),
	}
	outcome := Updated
	var err error
	switch {
	case !exists:
		outcome = Created
		_, err = t.Exec(ctx, `INSERT INTO document (tenant, store, id, title, media_type, bytes, state, error, content_hash, source_version, url, metadata, access,
				access_open, revision, attempts, available_at, waiting_since, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, 'pending', '', $7, $8, $9, $10, $11, $12, $13, 0, stoa_now(), stoa_now(), stoa_now())`, args...)
	case isChanged:
		outcome = Changed
		_, err = t.Exec(ctx, `UPDATE document SET title = $4, media_type = $5, bytes = $6, state = 'pending', error = '', content_hash = $7, source_version = $8,
				url = $9, metadata = $10, access = $11, access_open = $12, revision = $13, attempts = 0, available_at = stoa_now(),
				waiting_since = CASE WHEN state = 'pending' THEN waiting_since ELSE stoa_now() END, updated_at = stoa_now()
			WHERE tenant = $1 AND store = $2 AND id = $3`, args...)
	default:
		_, err = t.Exec(ctx, `UPDATE document SET url = $4, metadata = $5, access = $6, access_open = $7, updated_at = stoa_now()
			WHERE tenant = $1 AND store = $2 AND id = $3`, t.tenant, store, next.id, next.url, next.metadata, next.access, len(next.readers) == 0)
	}
	if err != nil || !isAccessChanged {
		return outcome, err
	}
	// The callers who may read the new version must not find the old one meanwhile, unless everyone may read that.
	if exists && (isChanged || old.state != string(document.Indexed)) && old.access != openAccess {
		if err := t.of(store).hideDocument(ctx, next.id); err != nil {
			return outcome, err
		}
	}
	if _, err := t.Exec(ctx, `DELETE FROM document_reader WHERE tenant = $1 AND store = $2 AND id = $3`, t.tenant, store, next.id); err != nil {
		return outcome, err
	}
	list := make([][]any, len(next.readers))
	for i, r := range next.readers {
		list[i] = []any{t.tenant, store, next.id, r.kind, r.name}
	}
	return outcome, t.InsertRows(ctx, readerTarget, list...)
}

var readerTarget = db.NewInsertTarget("document_reader", "tenant TEXT, store TEXT, id TEXT, kind TEXT, name TEXT", "tenant, store, id, kind, name")

// Bounds of what is stored of a document besides its content.
const (
	maxIDBytes       = 512
	maxTitleBytes    = 512
	maxURLBytes      = 2048
	maxVersionBytes  = 512
	maxMetadataBytes = 8 << 10
	maxReaders       = 100
	maxReaderBytes   = 512
)

// openAccess is the stored form of an access that is open.
const openAccess = "{}"

// newDocumentRow checks a document and returns its row. A title that is too long is an error if strict, and cut otherwise.
func newDocumentRow(l Listed, strict bool) (documentRow, error) {
	row := documentRow{id: l.ID, title: l.Title, mediaType: l.MediaType, bytes: l.Bytes, version: l.Version, url: l.URL}
	if !strict {
		row.title = cutText(row.title, maxTitleBytes)
	}
	for _, f := range []struct {
		field, text string
		limit       int
	}{
		{"id", row.id, maxIDBytes},
		{"title", row.title, maxTitleBytes},
		{"mediaType", row.mediaType, 255},
		{"url", row.url, maxURLBytes},
		{"version", row.version, maxVersionBytes},
	} {
		switch {
		case len(f.text) > f.limit:
			return row, agentsvc.NewInvalidError(f.field, "has %d bytes, at most %d are allowed", len(f.text), f.limit)
		case !isStorableText(f.text):
			return row, agentsvc.NewInvalidError(f.field, "is not valid UTF-8 or contains a NUL character")
		}
	}
	if row.id == "" {
		return row, agentsvc.NewInvalidError("id", "is required")
	}
	metadata := l.Metadata
	if metadata == nil {
		metadata = map[string]string{}
	}
	for k, v := range metadata {
		if !isStorableText(k, v) {
			return row, agentsvc.NewInvalidError("metadata", "is not valid UTF-8 or contains a NUL character")
		}
	}
	if row.metadata = encodeJSON(metadata); len(row.metadata) > maxMetadataBytes {
		return row, agentsvc.NewInvalidError("metadata", "has %d bytes as JSON, at most %d are allowed", len(row.metadata), maxMetadataBytes)
	}
	var err error
	row.access, row.readers, err = encodeAccess(l.Access)
	return row, err
}

// encodeAccess returns an access as it is stored, each entry once and in order, and its rows. An entry of subjects is a
// subject of any issuer, or an issuer, a space and a subject.
func encodeAccess(access document.Access) (string, []documentReader, error) {
	var sorted document.Access
	for _, s := range access.Subjects {
		sorted.Subjects = append(sorted.Subjects, strings.TrimSpace(s))
	}
	for _, s := range access.Roles {
		sorted.Roles = append(sorted.Roles, strings.TrimSpace(s))
	}
	var readers []documentReader
	for _, part := range []struct {
		field, kind string
		names       *[]string
	}{{"access.subjects", "subject", &sorted.Subjects}, {"access.roles", "role", &sorted.Roles}} {
		slices.Sort(*part.names)
		*part.names = slices.Compact(*part.names)
		for _, name := range *part.names {
			if name == "" || len(name) > maxReaderBytes || !isStorableText(name) {
				return "", nil, agentsvc.NewInvalidError(part.field, "has an entry that is empty, longer than %d bytes or not valid text", maxReaderBytes)
			}
			kind := part.kind
			if kind == "subject" && strings.Contains(name, " ") {
				kind = "user"
			}
			readers = append(readers, documentReader{kind, name})
		}
	}
	if len(readers) > maxReaders {
		return "", nil, agentsvc.NewInvalidError("access", "has %d entries, at most %d are allowed: use a role", len(readers), maxReaders)
	}
	return encodeJSON(sorted), readers, nil
}

// decodeMetadata reads the two columns of JSON.
func decodeMetadata(metadata, access string) (m map[string]string, a document.Access, err error) {
	if err = json.Unmarshal([]byte(metadata), &m); err == nil {
		err = json.Unmarshal([]byte(access), &a)
	}
	if len(m) == 0 {
		m = nil
	}
	return m, a, err
}

// isStorableText reports whether both engines can store the texts.
func isStorableText(texts ...string) bool {
	for _, text := range texts {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return false
		}
	}
	return true
}

// isStorableFilter reports whether a document's metadata can have every value of filter.
func isStorableFilter(filter map[string]string) bool {
	for k, v := range maps.All(filter) {
		if !isStorableText(k, v) {
			return false
		}
	}
	return true
}

// cutText returns text in a form that both engines can store, of at most limit bytes.
func cutText(text string, limit int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\x00", "")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "")
	}
	return text
}

// newSourceError refuses a caller's change of a document whose source is not uploads.
func newSourceError(store, source string) error {
	return agentsvc.NewError(agentsvc.CodeState, "the document store %s is filled from its source (%s): change the documents there", store, source)
}

// newHashError reports that a document's content is not the one that the caller expected.
func newHashError(hash string) error {
	return agentsvc.NewError(agentsvc.CodePrecondition, "the document's content hash is %s", hash)
}
