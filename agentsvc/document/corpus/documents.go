package corpus

import (
	"context"
	"errors"

	"stoa/agentsvc/document"
)

// Documents keeps a tenant's documents: for uploads and for whoever lists and reads them.
type Documents struct{ rows }

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
	Changed   Outcome = "changed"   // the content or the title: it is indexed again
	Updated   Outcome = "updated"   // metadata, URL or access alone, which take effect at once
	Unchanged Outcome = "unchanged" // nothing was written
)

// Put stores an upload and requests a pass. Uploading the same content again changes nothing, unless its indexing failed:
// then it is tried again. The version before stays searchable until the new one is indexed, except where the new one may
// be read by others: then it is hidden at once, because they must not read the old text.
//
// Errors: [agentsvc.CodeNotFound] (the store does not exist), [agentsvc.CodeInvalid], [agentsvc.CodePrecondition],
// [agentsvc.CodeExhausted] naming the limit.
func (d *Documents) Put(ctx context.Context, store string, u Upload) (document.Document, Outcome, error) {
	return document.Document{}, "", errors.ErrUnsupported
}

// Get returns a document that the reader may read; otherwise the error is [agentsvc.ErrNotFound].
func (d *Documents) Get(ctx context.Context, store, id string, reader document.Reader) (document.Document, error) {
	return document.Document{}, errors.ErrUnsupported
}

// ListFilter selects documents of a list.
type ListFilter struct {
	State  document.State // "" = every state
	Prefix string         // of the id
	After  string         // the id after which the page begins: the last one of the page before
	Size   int            // of the page, at most 1,000; 0 = 100
	Reader document.Reader
}

// DocumentPage is a page of documents, ordered by id.
type DocumentPage struct {
	Documents []document.Document
	More      bool
	Total     int64 // that the filter selects, on all pages
}

// List returns a page of the documents that the filter's reader may read.
func (d *Documents) List(ctx context.Context, store string, f ListFilter) (DocumentPage, error) {
	return DocumentPage{}, errors.ErrUnsupported
}

// Delete deletes a document. No search that begins after its return finds it. ifMatch is [Upload.IfMatch]. The error is
// [agentsvc.ErrNotFound] if the reader may not read the document or it does not exist.
func (d *Documents) Delete(ctx context.Context, store, id, ifMatch string, reader document.Reader) error {
	return errors.ErrUnsupported
}

// ReadBody returns the bytes of an upload that the reader may read; the error is [agentsvc.ErrNotFound] for documents
// of other sources, which are not stored.
func (d *Documents) ReadBody(ctx context.Context, store, id string, reader document.Reader) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

// ReadText returns the text of the searchable revision of a document, joined of its chunks; "" if none was indexed yet.
func (d *Documents) ReadText(ctx context.Context, store, id string, reader document.Reader) (string, error) {
	return "", errors.ErrUnsupported
}

// ListStores returns the state of the tenant's document stores, ordered by name. Its counts are of all documents: it is
// for callers that may read every document.
func (d *Documents) ListStores(ctx context.Context) ([]document.StoreStatus, error) {
	return nil, errors.ErrUnsupported
}

// StoreStatus returns the state of one document store, or [agentsvc.ErrNotFound].
func (d *Documents) StoreStatus(ctx context.Context, store string) (document.StoreStatus, error) {
	return document.StoreStatus{}, errors.ErrUnsupported
}

// AllowRemoval confirms that the next complete listing of the store's source may remove any number of documents, and
// requests a pass. See [Index.DeleteUnlisted].
func (d *Documents) AllowRemoval(ctx context.Context, store string) error {
	return errors.ErrUnsupported
}
