package memory

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/words"
	"stoa/tenancy/db"
)

// Finder searches the memories of one owner. It is safe for concurrent use.
type Finder interface {
	// FindMemories returns at most limit memories of the owner of the run's session for a question, best first. With
	// onlyRelevant it leaves out those that match badly. The run pays for the search.
	FindMemories(ctx context.Context, scope agentsvc.RunScope, question string, limit int, onlyRelevant bool) ([]Memory, error)
	// ForgetOwner deletes what the finder has stored of an owner outside of the rows.
	ForgetOwner(ctx context.Context, owner agentsvc.Owner) error
}

// KeywordFinder finds memories by their words, in the database. Ranking by
// [KeywordFinder.FindMemories] is the same on both engines.
type KeywordFinder struct {
	Store *Store
}

// maxCandidates bounds the rows that the database returns to be ranked.
const maxCandidates = 200

// FindMemories implements [Finder]. A word counts more the fewer candidates have it (inverse document frequency). Among
// equals the later memory comes first.
func (k KeywordFinder) FindMemories(ctx context.Context, scope agentsvc.RunScope, question string, limit int, onlyRelevant bool) ([]Memory, error) {
	query := words.ExtractQuestion(question)
	if len(query) == 0 {
		return nil, nil
	}
	found, err := k.Store.matchWords(ctx, scope.Session.Owner, query)
	if err != nil {
		return nil, err
	}
	// The frequencies are those among the candidates. That is enough to rank them, and needs no statistics of all rows.
	documentCount := map[string]float64{}
	for _, c := range found {
		for _, w := range query {
			if slices.Contains(c.words, w) {
				documentCount[w]++
			}
		}
	}
	// A word that no candidate has counts as if half of one had it, so that it has a finite weight.
	weight := func(w string) float64 { return math.Log(1 + float64(len(found))/max(documentCount[w], 0.5)) }
	for i := range found {
		for _, w := range query {
			if slices.Contains(found[i].words, w) {
				found[i].score += weight(w)
			}
		}
	}
	// Relevance is judged against the question, so that a long question needs more than one common word to match.
	if onlyRelevant {
		threshold := minScore(query, weight)
		found = slices.DeleteFunc(found, func(c candidate) bool { return c.score < threshold })
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.score, a.score), strings.Compare(b.ID, a.ID))
	})
	out := make([]Memory, min(limit, len(found)))
	for i := range out {
		out[i] = found[i].Memory
	}
	return out, nil
}

// ForgetOwner implements [Finder]. It has nothing to delete.
func (KeywordFinder) ForgetOwner(context.Context, agentsvc.Owner) error { return nil }

// minScore returns the least score of a relevant memory: a quarter of the sum of the question's four heaviest words.
func minScore(query []string, weight func(string) float64) (sum float64) {
	var all []float64
	for _, w := range query {
		all = append(all, weight(w))
	}
	slices.Sort(all)
	for _, w := range all[max(len(all)-4, 0):] {
		sum += w
	}
	return sum / 4
}

// candidate is a memory that has at least one of a question's words.
type candidate struct {
	Memory
	words []string
	score float64
}

// matchWords returns memories with any of the words, those with most of them first. It is the one place where the engines
// differ. On PostgreSQL column lexemes filters the owner's rows, which [MaxMemories] bounds: an index of words is never used
// under forced row-level security. On SQLite the table memory_words is a full-text index, whose column scope stands for
// tenant and owner, so that the index itself is restricted to one owner.
// Words have letters and digits only, so quoting them is safe.
func (s *Store) matchWords(ctx context.Context, owner agentsvc.Owner, query []string) (found []candidate, err error) {
	text, args := `SELECT `+memoryColumns+`, words FROM memory
		WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 AND lexemes @@ CAST(CAST($4 AS TEXT) AS tsquery)
		ORDER BY ts_rank(lexemes, CAST(CAST($4 AS TEXT) AS tsquery)) DESC, id DESC LIMIT $5`, []any{s.tenant, owner.Subject, owner.Issuer}
	if s.h.Engine() == db.Postgres {
		args = append(args, `'`+strings.Join(query, `' | '`)+`'`, maxCandidates)
	} else {
		text = `SELECT ` + memoryColumns + `, memory.words FROM memory_words JOIN memory ON memory.n = memory_words.rowid
			WHERE memory_words MATCH $4 AND tenant = $1 AND owner_sub = $2 AND owner_iss = $3
			ORDER BY memory_words.rank, id DESC LIMIT $5`
		scope := hex.EncodeToString([]byte(s.tenant + "\x1f" + owner.Issuer + "\x1f" + owner.Subject))
		args = append(args, fmt.Sprintf(`scope : "%s" AND words : ("%s")`, scope, strings.Join(query, `" OR "`)), maxCandidates)
	}
	var b db.Batch
	b.Query(func(r db.Row) error {
		var c candidate
		var words string
		c.Memory, err = scanMemory(r, &words)
		c.words = strings.Split(words, " ")
		found = append(found, c)
		return err
	}, text, args...)
	if err := s.h.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("search memories: %w", err)
	}
	return found, nil
}
