package documents

import (
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/response"
)

// Bounds of a search.
const (
	maxQuery   = 8 << 10 // bytes
	maxResults = 100
	maxFilters = 20 // metadata values that a filter demands
)

// handleSearch answers with the passages of a store that fit the query best, of the documents that the caller may read.
// Its model calls, such as the embedding of the query, are the caller's usage.
func handleSearch(w http.ResponseWriter, r *http.Request) error {
	c, err := newCall(r)
	if err != nil {
		return err
	}
	var b searchBody
	if err := surface.DecodeBody(r, &b); err != nil {
		return err
	}
	q, err := b.toQuery()
	if err != nil {
		return err
	}
	if c.store.Searcher == nil {
		return agentsvc.NewError(agentsvc.CodeUnavailable, "the document store %q cannot be searched at present", c.store.Name)
	}
	q.Reader = c.reader
	found, err := c.store.Searcher.Search(r.Context(), agentsvc.Payer{Owner: c.Principal.Owner()}, q)
	if err != nil {
		return err
	}
	size := 0
	for _, p := range found.Passages {
		size += len(p.Text)
	}
	if err := surface.MemoryOf(r).ReserveTotal(r.Context(), int64(size)); err != nil {
		return err
	}
	out := searchResult{Results: make([]passageBody, len(found.Passages)), Mode: string(found.Mode), Degraded: found.Degraded}
	for i, p := range found.Passages {
		out.Results[i] = newPassageBody(p)
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// toQuery returns the query, without its reader.
func (b searchBody) toQuery() (document.Query, error) {
	q := document.Query{Text: strings.TrimSpace(b.Query), Mode: document.Mode(b.Mode), Filter: b.Filter}
	if b.Limit != nil {
		if q.Limit = *b.Limit; q.Limit < 1 || q.Limit > maxResults {
			return q, agentsvc.NewInvalidError("limit", "must be between 1 and %d", maxResults)
		}
	}
	modes := []document.Mode{"", document.Hybrid, document.Vector, document.Text}
	switch {
	case q.Text == "":
		return q, agentsvc.NewInvalidError("query", "is missing: the question or words to search for")
	case len(q.Text) > maxQuery || !utf8.ValidString(q.Text):
		return q, agentsvc.NewInvalidError("query", "must be at most %d bytes of text", maxQuery)
	case !slices.Contains(modes, q.Mode):
		return q, agentsvc.NewInvalidError("mode", "must be hybrid, vector or text")
	case len(q.Filter) > maxFilters:
		return q, agentsvc.NewInvalidError("filter", "has %d values, %d are allowed", len(q.Filter), maxFilters)
	}
	return q, nil
}
