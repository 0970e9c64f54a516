package retrieval

import (
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/agentsvc/words"
)

// checkQuery checks q and sets its limit. It returns the mode to search in, with a note if it is not the one asked for.
func (s *Searcher) checkQuery(q *document.Query) (mode document.Mode, note string, err error) {
	switch {
	case len(q.Text) > maxQueryBytes:
		return "", "", agentsvc.NewInvalidError("query", "is longer than %d bytes", maxQueryBytes)
	case !utf8.ValidString(q.Text):
		return "", "", agentsvc.NewInvalidError("query", "is not valid UTF-8")
	case q.Limit < 0:
		return "", "", agentsvc.NewInvalidError("limit", "is negative")
	case len(q.Filter) > maxFilter:
		return "", "", agentsvc.NewInvalidError("filter", "has more than %d values", maxFilter)
	}
	for name, value := range q.Filter {
		if len(name) > maxFilterBytes || len(value) > maxFilterBytes {
			return "", "", agentsvc.NewInvalidError("filter", "has a name or a value of more than %d bytes", maxFilterBytes)
		}
	}
	if q.Limit == 0 {
		q.Limit = s.options.TopK
	}
	q.Limit = min(q.Limit, maxLimit)
	hasVectors := s.options.Embedder != nil
	switch q.Mode {
	case "":
		if hasVectors {
			return document.Hybrid, "", nil
		}
		return document.Text, "", nil
	case document.Vector:
		if !hasVectors {
			return "", "", agentsvc.NewInvalidError("mode", "cannot be vector: the document store %s has no embedder", s.options.Store)
		}
	case document.Hybrid:
		if !hasVectors {
			return document.Text, "the document store has no embedder: it was searched by words only", nil
		}
	case document.Text:
	default:
		return "", "", agentsvc.NewInvalidError("mode", "must be hybrid, vector or text")
	}
	return q.Mode, "", nil
}

// hasWords reports whether a text has words other than those that nearly every text has.
func hasWords(text string) bool { return len(words.ExtractQuestion(text)) > 0 }

// cutQuery returns a text as a query: at most [maxQueryBytes], valid UTF-8.
func cutQuery(text string) string { return cutText(text, maxQueryBytes) }

// cutText cuts a text to at most n bytes, at a character.
func cutText(text string, n int) string {
	return strings.ToValidUTF8(text[:min(len(text), n)], "")
}

// notes are the reasons for which parts of a search were left out. The zero value has none; it is safe for concurrent
// use.
type notes struct {
	mu sync.Mutex
	// list has each reason once. Guarded by mu.
	list []string
}

// add adds a reason.
func (n *notes) add(reason string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if reason != "" && !slices.Contains(n.list, reason) {
		n.list = append(n.list, reason)
	}
}

// String returns the reasons in the order in which they were added.
func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.list, "; ")
}
