package indexing

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/document/source"
)

const (
	// listInterval is how often a source is listed that does not report its changes.
	listInterval = time.Hour
	// incrementalInterval is the same for a store with incremental_indexing.
	incrementalInterval = 10 * time.Minute
	// watchedInterval is how often a source is listed that reports its changes, should it miss one.
	watchedInterval = 15 * time.Minute
	// upsertBatch is how many listed documents are written at once.
	upsertBatch = 500
	// maxListingBytes bounds what the documents of a listing take in memory, apart from their content.
	maxListingBytes = 64 << 20
)

// cursor is what a pass leaves for the next one of the store, wherever that runs.
type cursor struct {
	// Version is [Store.Version] at the last complete listing, ListedAt its beginning in seconds since 1970.
	Version  string `json:"version,omitempty"`
	ListedAt int64  `json:"listed_at,omitempty"`
	// RetryAt is when the next document that was postponed is due, in milliseconds since 1970; 0 = none is known.
	RetryAt int64 `json:"retry_at,omitempty"`
}

// parseCursor returns the cursor in text. One that cannot be read is empty: the source is listed again.
func parseCursor(text string) (c cursor) {
	_ = json.Unmarshal([]byte(text), &c)
	return c
}

// String returns the text that parseCursor reads.
func (c cursor) String() string {
	text, _ := json.Marshal(c) // of texts and numbers, which can always be encoded
	return string(text)
}

// nextListing returns the time until the source has to be listed: 0 = now, negative = never, because there is none.
func (c cursor) nextListing(s *Store, now time.Time) time.Duration {
	interval := listInterval
	switch {
	case s.Watch:
		interval = watchedInterval
	case s.Incremental:
		interval = incrementalInterval
	}
	switch {
	case s.Source == nil:
		return -1
	case c.ListedAt == 0, c.Version != s.Version:
		return 0
	}
	return max(time.Unix(c.ListedAt, 0).Add(interval).Sub(now), 0)
}

// listing is what a source has listed. It is kept between the slices of a pass in this process, because the documents
// are opened by their items.
type listing struct {
	store *Store // the source of another runtime is another one
	items map[string]source.Item
	// keptAt is when it was listed. Guarded by Indexer.mu.
	keptAt time.Time
}

// lister is the part of a pass that lists the source.
type lister struct{ *passRun }

// listSource lists the source and records what it has. What the source no longer has is deleted, if the listing is
// complete. An error is that of the source, or of the database.
func (r lister) listSource(ctx context.Context) error {
	began := time.Now()
	ctx, span := startSpan(ctx, "list documents")
	l := &listing{store: r.store, items: map[string]source.Item{}}
	limited, cancel := context.WithTimeoutCause(ctx, r.x.options.Bounds.List, errListLimit)
	err := r.upsertAll(limited, l)
	if err != nil && errors.Is(context.Cause(limited), errListLimit) {
		err = source.Errorf("the listing of the source did not end within %s; its documents stay as they are", r.x.options.Bounds.List)
	}
	cancel()
	endSpan(span, err)
	r.x.keepListing(r.key(), l)
	r.listing = l
	if err != nil {
		return err
	}
	ids := make(map[string]struct{}, len(l.items))
	for id := range l.items {
		ids[id] = struct{}{}
	}
	removed, err := r.app.Rows.Index.DeleteUnlisted(ctx, r.pass, ids)
	for range removed {
		r.x.options.Hooks.OnDocument(r.app.Name, OutcomeRemoved, 0)
	}
	if err != nil {
		return err
	}
	r.cursor.Version, r.cursor.ListedAt = r.store.Version, began.Unix()
	return nil
}

// errListLimit is the cause of the end of a listing that took too long.
var errListLimit = errors.New("the source was not listed in time")

// upsertAll records the listed documents in batches and adds them to l.
func (r lister) upsertAll(ctx context.Context, l *listing) error {
	batch, size := make([]corpus.Listed, 0, upsertBatch), 0
	for item, err := range r.store.Source.List(ctx) {
		if err != nil {
			return err
		}
		if size += itemSize(item); size > maxListingBytes {
			return source.PermanentErrorf("the ids, titles, metadata and access lists of the documents have more than %d bytes: list fewer, or shorten them", maxListingBytes)
		}
		l.items[item.ID] = item
		batch = append(batch, newListed(item))
		if len(batch) == upsertBatch {
			if err := r.upsert(ctx, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return r.upsert(ctx, batch)
}

// upsert records listed documents. One that is invalid is left out, so that it does not keep out the others.
func (r lister) upsert(ctx context.Context, items []corpus.Listed) error {
	if len(items) == 0 {
		return nil
	}
	index := r.app.Rows.Index
	_, err := index.UpsertListed(ctx, r.pass, items, false)
	if !errors.Is(err, agentsvc.CodeInvalid) {
		return err
	}
	for i := range items {
		_, err := index.UpsertListed(ctx, r.pass, items[i:i+1], false)
		if errors.Is(err, agentsvc.CodeInvalid) {
			r.log().WarnContext(ctx, "a document of a source is left out", "document", items[i].ID, "reason", err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// itemSize returns the bytes of what a listing keeps of a document.
func itemSize(i source.Item) int {
	n := len(i.ID) + len(i.Version) + len(i.Title) + len(i.MediaType) + len(i.URL)
	for name, value := range i.Metadata {
		n += len(name) + len(value)
	}
	for _, name := range slices.Concat(i.Access.Subjects, i.Access.Roles) {
		n += len(name)
	}
	return n
}

// newListed returns the record of a listed document.
func newListed(i source.Item) corpus.Listed {
	return corpus.Listed{ID: i.ID, Title: i.Title, MediaType: i.MediaType, Bytes: i.Bytes, Version: i.Version, URL: i.URL, Metadata: i.Metadata, Access: i.Access}
}
