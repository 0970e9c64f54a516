package retrieval

import (
	"cmp"
	"slices"
	"strings"

	"stoa/agentsvc/document"
)

// maxPassageBytes bounds a passage that is joined from several chunks.
const maxPassageBytes = 8 << 10

// joinChunks returns up to limit passages of the best chunks. A chunk that is adjacent to a better one of its document
// becomes a part of that one's passage, so that a text is neither interrupted nor repeated. isComplete means that further chunks would
// change nothing.
func (s *Searcher) joinChunks(ranked []candidate, limit int) (passages []document.Passage, isComplete bool) {
	var groups [][]candidate // each ordered by position, the groups by their best chunk
	for _, c := range ranked {
		if joined := addToGroup(groups, c); joined != nil {
			groups = joined
			continue
		}
		if isComplete = len(groups) == limit; isComplete {
			break
		}
		groups = append(groups, []candidate{c})
	}
	passages = make([]document.Passage, len(groups))
	for i, g := range groups {
		passages[i] = s.newPassage(g)
	}
	return passages, isComplete
}

// addToGroup adds a chunk to the group that it is adjacent to, and joins two groups that it connects. It returns nil if
// there is none, or if the passage would become too long.
func addToGroup(groups [][]candidate, c candidate) [][]candidate {
	at := slices.IndexFunc(groups, func(g []candidate) bool {
		return g[0].Document == c.Document && (g[0].Ordinal == c.Ordinal+1 || g[len(g)-1].Ordinal == c.Ordinal-1)
	})
	if at < 0 || sizeOfGroup(groups[at])+len(c.Text) > maxPassageBytes {
		return nil
	}
	joined := append(slices.Clone(groups[at]), c)
	slices.SortFunc(joined, func(a, b candidate) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	groups = slices.Clone(groups)
	groups[at] = joined
	for i := at + 1; i < len(groups); i++ {
		g := groups[i]
		connects := g[0].Document == c.Document && (g[0].Ordinal == joined[len(joined)-1].Ordinal+1 || g[len(g)-1].Ordinal == joined[0].Ordinal-1)
		if connects && sizeOfGroup(g)+sizeOfGroup(joined) <= maxPassageBytes {
			groups[at] = append(joined, g...)
			slices.SortFunc(groups[at], func(a, b candidate) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
			return slices.Delete(groups, i, i+1)
		}
	}
	return groups
}

// sizeOfGroup returns the bytes of the texts of a group.
func sizeOfGroup(g []candidate) (n int) {
	for _, c := range g {
		n += len(c.Text)
	}
	return n
}

// newPassage returns the passage of adjacent chunks. Score and id are those of the best one. The place is where the text
// begins, so that it fits the beginning of the text that a citation quotes.
func (s *Searcher) newPassage(group []candidate) document.Passage {
	best := slices.MaxFunc(group, func(a, b candidate) int { return cmp.Compare(a.score, b.score) })
	first := group[0]
	var text strings.Builder
	end := first.Start
	for _, c := range group {
		text.WriteString(continueText(text.String(), end, c))
		end = max(end, c.End)
	}
	return document.Passage{
		Store: s.options.Store, Document: first.Document, Title: first.Title, URL: first.URL, ChunkID: best.ID, Place: first.Place,
		Text: text.String(), Score: best.score, Scores: best.scores,
	}
}

// continueText returns what the chunk c adds to text, which ends at the offset end of the document. The overlap follows
// from the offsets; it is removed only if the texts agree, because a chunk's text may differ from the document's in white
// space.
func continueText(text string, end int, c candidate) string {
	if text == "" {
		return c.Text
	}
	for n := min(end-c.Start, len(c.Text), len(text)); n > 0; n-- {
		if strings.HasSuffix(text, c.Text[:n]) {
			return c.Text[n:]
		}
	}
	if c.Start == end {
		return c.Text
	}
	return "\n" + c.Text
}
