package retrieval

import (
	"context"
	"sync"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
)

// Context puts passages before the model of an agent without being asked.
type Context struct {
	Searchers []*Searcher
	// Limit is the number of passages, 0 = 5. MaxLength bounds each, in characters, 0 = 1,000.
	Limit, MaxLength int
	// Filter may be nil.
	Filter TextFilter
}

const (
	defaultContextLimit  = 5
	defaultContextLength = 1000
	// contextTimeout bounds the search, which delays the turn. Its parts have shorter bounds of their own, after which it
	// goes on without them.
	contextTimeout = CallTimeout
)

// Build returns a part of the system prompt with the passages that match the last message of the user, of all stores; ""
// if there are none. A store that cannot be searched is left out, and logged.
func (c Context) Build(ctx context.Context, scope agentsvc.RunScope, conversation []agentsvc.Entry) string {
	question := ""
	for _, e := range conversation {
		if e.Message != nil && e.Message.Role == agentsvc.RoleUser {
			question = e.Message.Text()
		}
	}
	limit, length := c.Limit, c.MaxLength
	if limit <= 0 {
		limit = defaultContextLimit
	}
	if length <= 0 {
		length = defaultContextLength
	}
	ctx, cancel := context.WithTimeout(ctx, contextTimeout)
	defer cancel()
	q := document.Query{Text: cutQuery(question), Limit: min(limit, maxLimit), Reader: readerOf(scope)}
	found := make([][]document.Passage, len(c.Searchers))
	var group sync.WaitGroup
	for i, s := range c.Searchers {
		group.Go(func() {
			result, err := s.Search(ctx, scope, q)
			if err != nil {
				s.options.Log.WarnContext(ctx, "an agent answers without a document store", "store", s.options.Store, "error", err)
				return
			}
			found[i] = filterPassages(ctx, scope, result.Passages, c.Filter)
		})
	}
	group.Wait()
	text, _ := quotePassages(scope, takeTurns(found, q.Limit), length, true)
	if text == "" {
		return ""
	}
	return "Each line below is a passage of a document that may help to answer. " + quoteRules + text
}

// takeTurns returns up to limit passages, the best of each store first: scores of different stores cannot be compared.
func takeTurns(found [][]document.Passage, limit int) (merged []document.Passage) {
	for rank := 0; len(merged) < limit; rank++ {
		isOver := true
		for _, list := range found {
			if rank < len(list) && len(merged) < limit {
				merged, isOver = append(merged, list[rank]), false
			}
		}
		if isOver {
			break
		}
	}
	return merged
}
