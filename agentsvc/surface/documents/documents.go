// Package documents implements the endpoints of an app's document stores: list and search them, upload, read and delete
// documents. They answer below /v1, in camelCase.
//
// [Routes] is the table of endpoints. A caller with documents:read sees the documents whose access includes it: others
// are neither found nor listed nor counted. A caller with documents:write sees all. A store that is not in the app's
// configuration does not exist, whatever rows are left of it. Request and response types are in wire.go.
//
// docs/api/documents.md is the reference.
package documents

import (
	"net/http"

	"stoa/agentsvc/document"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/surface"
	"stoa/authz"
)

// uploadHeaders are the headers that describe an uploaded document.
var uploadHeaders = []string{titleHeader, metadataHeader, accessHeader}

// The headers of an upload. The title may have encoded words (RFC 2047); the others are JSON.
const (
	titleHeader    = "X-Document-Title"
	metadataHeader = "X-Document-Metadata"
	accessHeader   = "X-Document-Access"
)

// Patterns of the routes.
const (
	storesPattern    = "/v1/document-stores"
	storePattern     = storesPattern + "/{store}"
	documentsPattern = storePattern + "/documents"
	documentPattern  = documentsPattern + "/{document}"
)

// Routes returns the endpoints.
func Routes() []surface.Route {
	routes := []surface.Route{
		{Method: http.MethodGet, Pattern: storesPattern, Scope: authz.DocumentsRead, Serve: handleListStores},
		{Method: http.MethodPost, Pattern: storePattern + ":search", Scope: authz.DocumentsRead, Serve: handleSearch},
		{Method: http.MethodPost, Pattern: storePattern + ":reindex", Scope: authz.DocumentsWrite, Query: []string{"confirm"}, Serve: handleReindex, Idempotent: true},
		{Method: http.MethodGet, Pattern: documentsPattern, Scope: authz.DocumentsRead, Query: []string{"state", "prefix", "page_size", "page_token"}, Serve: handleListDocuments},
		{Method: http.MethodGet, Pattern: documentPattern, Scope: authz.DocumentsRead, Serve: handleGetDocument},
		{Method: http.MethodGet, Pattern: documentPattern + "/content", Scope: authz.DocumentsRead, Serve: handleGetContent},
		// A large document may take longer to arrive than other requests may take in all; the handler has the deadline.
		{Method: http.MethodPut, Pattern: documentPattern, Scope: authz.DocumentsWrite, Serve: handlePutDocument, Idempotent: true, File: true, NoDeadline: true, RequestHeaders: uploadHeaders},
		{Method: http.MethodDelete, Pattern: documentPattern, Scope: authz.DocumentsWrite, Serve: handleDeleteDocument, Idempotent: true},
	}
	for i := range routes {
		routes[i].Kind = surface.Tenant
	}
	return routes
}

// call is a request about one document store.
type call struct {
	*surface.Request
	stores *runtime.Documents
	store  *runtime.DocumentStore
	reader document.Reader
}

// newCall returns the call for the store in the path, [agentsvc.ErrNotFound] if the configuration has none of that name.
func newCall(r *http.Request) (call, error) {
	v := surface.RequestOf(r)
	c := call{Request: v, stores: v.Runtime.Documents(), reader: newReader(v)}
	var err error
	c.store, err = c.stores.Store(surface.PathParam(r, "store"))
	return c, err
}

// newReader returns the caller as the reader of documents.
func newReader(v *surface.Request) document.Reader {
	return document.Reader{Owner: v.Principal.Owner(), Roles: v.Principal.Roles, All: v.HasScope(authz.DocumentsWrite)}
}
