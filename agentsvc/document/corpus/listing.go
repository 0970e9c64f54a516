package corpus

import (
	"context"
	"fmt"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/tenancy/db"
)

// Listed is a document as its source lists it.
type Listed struct {
	ID        string
	Title     string
	MediaType string
	Bytes     int64
	// Version is what changes with the content (an ETag, a time of change, a hash).
	Version  string
	URL      string
	Metadata map[string]string
	Access   document.Access
}

// UpsertListed records documents that a source has listed, at most 1,000 a call. A document that is new, or whose version
// or title has changed, becomes pending; a change of metadata, URL or access takes effect at once. With force every document
// becomes pending. changed is the number of documents that became pending. Nothing of items is written if one is invalid or
// exceeds a limit: the error names it.
func (x *Index) UpsertListed(ctx context.Context, pass Pass, items []Listed, force bool) (changed int, err error) {
	if len(items) > maxPage {
		return 0, fmt.Errorf("%d documents are listed at once, at most %d may be", len(items), maxPage)
	}
	next := make([]documentRow, len(items))
	ids := make([]string, len(items))
	size := int64(0)
	for i, item := range items {
		if next[i], err = newDocumentRow(item, false); err != nil {
			return 0, fmt.Errorf("document %q: %w", cutText(item.ID, maxIDBytes), err)
		}
		ids[i] = item.ID
		size += next[i].textSize()
	}
	err = x.runTx(ctx, "record the documents of a source", func(t *tx) error {
		changed = 0
		if err := t.lockTenant(ctx); err != nil {
			return err
		}
		before, err := t.readDocuments(ctx, pass.Store, ids...)
		if err != nil {
			return err
		}
		// The quota is asked for what is new alone, since most listings change nothing.
		if len(before) < len(items) {
			if err := t.h.CheckQuota(size, db.StoresNew); err != nil {
				return err
			}
			if err := t.checkCount(ctx, int64(len(items)-len(before))); err != nil {
				return err
			}
		}
		if err := t.lockPass(ctx, pass); err != nil {
			return err
		}
		for _, d := range next {
			old, exists := before[d.id]
			isChanged := force || !exists || old.version != d.version || old.title != d.title && d.title != ""
			if !isChanged || d.title == "" {
				d.title = old.title
			}
			outcome, err := t.writeDocument(ctx, pass.Store, old, d, exists, isChanged)
			if err != nil {
				return err
			}
			if outcome == Created || outcome == Changed {
				changed++
			}
			before[d.id] = d // an id that is listed twice is the same document
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return changed, nil
}

// UnlistedRemoval is the detail of an error of [Index.DeleteUnlisted] that needs a confirmation.
type UnlistedRemoval struct{ Documents, Missing int64 }

// DeleteUnlisted deletes the documents of the store that are not in listed. It must be called only after the source was
// listed to its end without an error. If more than half of at least 20 documents would be deleted it deletes nothing and
// returns an error of [agentsvc.CodeState] with an [UnlistedRemoval], unless [Documents.AllowRemoval] was called before.
func (x *Index) DeleteUnlisted(ctx context.Context, pass Pass, listed map[string]struct{}) (deleted int, err error) {
	var total int
	var missing []string
	err = x.read(ctx, "find documents that are not listed", func(r db.Row) error {
		var id string
		err := r.Scan(&id)
		total++
		if _, ok := listed[id]; !ok {
			missing = append(missing, id)
		}
		return err
	}, `SELECT id FROM document WHERE tenant = $1 AND store = $2 ORDER BY id`, x.tenant, pass.Store)
	if err != nil {
		return 0, err
	}
	isLarge := total >= minGuardedDocuments && 2*len(missing) > total
	for part := range slices.Chunk(missing, 100) {
		err := x.runTx(ctx, "delete documents that are not listed", func(t *tx) error {
			if isLarge {
				if err := t.checkRemovalAllowed(ctx, pass.Store, total, len(missing)); err != nil {
					return err
				}
			}
			if _, err := t.readDocuments(ctx, pass.Store, part...); err != nil { // locks them
				return err
			}
			if err := t.lockPass(ctx, pass); err != nil {
				return err
			}
			for _, id := range part {
				if err := t.deleteDocument(ctx, pass.Store, id); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return deleted, err
		}
		deleted += len(part)
	}
	return deleted, x.runTx(ctx, "end the removal of documents", func(t *tx) error {
		if err := t.lockPass(ctx, pass); err != nil {
			return err
		}
		_, err := t.Exec(ctx, `UPDATE index_pass SET removal_allowed = FALSE WHERE tenant = $1 AND store = $2 AND removal_allowed`, t.tenant, pass.Store)
		return err
	})
}

// minGuardedDocuments is the number of documents from which on a listing that lacks more than half of them is suspected.
const minGuardedDocuments = 20

// checkRemovalAllowed returns an error unless [Documents.AllowRemoval] was called.
func (t *tx) checkRemovalAllowed(ctx context.Context, store string, total, missing int) error {
	allowed := false
	err := t.Query(ctx, func(r db.Row) error { return r.Scan(&allowed) }, `SELECT removal_allowed FROM index_pass WHERE tenant = $1 AND store = $2`, t.tenant, store)
	if err == nil && !allowed {
		err = &agentsvc.Error{
			Code:    agentsvc.CodeState,
			Message: fmt.Sprintf("the source lists %d of the %d documents of the store: confirm the removal of the other %d, or repair the source", total-missing, total, missing),
			Detail:  UnlistedRemoval{Documents: int64(total), Missing: int64(missing)},
		}
	}
	return err
}

// checkCount returns an error if n more documents exceed the tenant's limit.
func (t *tx) checkCount(ctx context.Context, n int64) error {
	var documents int64
	err := t.Query(ctx, func(r db.Row) error { return r.Scan(&documents) },
		`SELECT CAST(COALESCE(SUM(documents), 0) AS BIGINT) FROM document_total WHERE tenant = $1 AND generation = 0`, t.tenant)
	if err == nil && documents+n > t.limits.Documents {
		err = newLimitError(limitDocuments, "the app has %d documents and may have %d, the source lists %d more", documents, t.limits.Documents, n)
	}
	return err
}
