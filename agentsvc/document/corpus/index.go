package corpus

import (
	"context"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/tenancy/db"
)

// Index is the indexer's access to a tenant's documents. The methods that take a [Pass] write only while it is held.
type Index struct {
	rows
	vectors *VectorIndexes
}

// RequestPass makes the pass of a store due now. One that runs is followed by another.
func (x *Index) RequestPass(ctx context.Context, store string) error {
	var n int64
	var b db.Batch
	b.Exec(&n, requestPassSQL, x.tenant, store)
	if err := x.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("request an indexing pass: %w", err)
	}
	if n == 0 {
		return agentsvc.ErrNotFound
	}
	return nil
}

// PendingDocument is a document that waits for its indexing, at the revision that is to be indexed.
type PendingDocument struct {
	document.Document
	Revision int64 // see [Commit]
	Attempts int64 // that failed
}

// NextPending returns up to n documents of a store that wait for their indexing and whose next attempt is due, with an id
// after after, ordered by id.
func (x *Index) NextPending(ctx context.Context, store, after string, n int) ([]PendingDocument, error) {
	var found []PendingDocument
	err := x.read(ctx, "find pending documents", func(r db.Row) error {
		var d PendingDocument
		var err error
		d.Document, err = scanDocument(r, store, &d.Revision, &d.Attempts)
		found = append(found, d)
		return err
	}, `SELECT `+documentColumns+`, d.revision, d.attempts FROM document d`+x.indexedBy("document_pending")+`
		WHERE d.tenant = $1 AND d.store = $2 AND d.state = 'pending' AND d.available_at <= stoa_now() AND d.id > $3 ORDER BY d.id LIMIT $4`,
		x.tenant, store, after, int64(n))
	return found, err
}

// NextAttempt returns the time until the next attempt at a pending document of a store is due, 0 if one is due now. found is
// false if none is pending. A pass that ends uses it for [Release.After].
func (x *Index) NextAttempt(ctx context.Context, store string) (wait time.Duration, found bool, err error) {
	var at, now int64
	err = x.read(ctx, "find the next attempt at a document", func(r db.Row) error {
		found = true
		return r.Scan(&at, &now)
	}, `SELECT available_at, stoa_now() FROM document`+x.indexedBy("document_pending")+` WHERE tenant = $1 AND store = $2 AND state = 'pending' ORDER BY available_at LIMIT 1`, x.tenant, store)
	return max(time.Duration(at-now)*time.Microsecond, 0), found, err
}

// ReadBody returns the body of an upload at a revision. The error is [ErrDocumentChanged] if it has another one by now.
func (x *Index) ReadBody(ctx context.Context, store, id string, revision int64) ([]byte, error) {
	var body []byte
	found := false
	err := x.read(ctx, "read the body of a document", func(r db.Row) error {
		found = true
		return r.Scan(&body)
	}, `SELECT b.body FROM document d JOIN document_body b ON b.tenant = d.tenant AND b.store = d.store AND b.id = d.id
		WHERE d.tenant = $1 AND d.store = $2 AND d.id = $3 AND d.revision = $4`, x.tenant, store, id, revision)
	if err == nil && !found {
		err = ErrDocumentChanged
	}
	return body, err
}

// FailDocument records that a document could not be indexed, for a reason in words for its uploader. It is tried again after
// retry; 0 means that it has failed for good, until it is changed. What was indexed of it before stays searchable.
func (x *Index) FailDocument(ctx context.Context, pass Pass, d PendingDocument, reason string, retry time.Duration) error {
	return x.runTx(ctx, "record that a document could not be indexed", func(t *tx) error {
		revision, found, err := t.lockDocument(ctx, pass.Store, d.ID)
		if err != nil {
			return err
		}
		if err := t.lockPass(ctx, pass); err != nil {
			return err
		}
		if !found || revision != d.Revision {
			return ErrDocumentChanged
		}
		state := document.Failed
		if retry > 0 {
			state = document.Pending
		}
		_, err = t.Exec(ctx, `UPDATE document SET state = $4, error = $5, attempts = attempts + 1, available_at = stoa_now() + $6, updated_at = stoa_now()
			WHERE tenant = $1 AND store = $2 AND id = $3`, t.tenant, pass.Store, d.ID, string(state), cutText(reason, 1000), retry.Microseconds())
		return err
	})
}

// AddEmbeddedTokens adds to the tokens that the store's embedding has used.
func (x *Index) AddEmbeddedTokens(ctx context.Context, store string, tokens int64) error {
	var b db.Batch
	b.Exec(nil, `UPDATE document_store SET embedded_tokens = embedded_tokens + $3 WHERE tenant = $1 AND store = $2`, x.tenant, store, tokens)
	if err := x.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("add embedded tokens: %w", err)
	}
	return nil
}
