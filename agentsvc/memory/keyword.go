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
	"stoa/tenancy/db"
)

// Finder finds what an owner's memories hold on a question, what fits best first. With sure it leaves out what fits
// badly. It is safe for concurrent use.
type Finder interface {
	FindMemories(ctx context.Context, owner agentsvc.Owner, question string, limit int, onlyRelevant bool) ([]Memory, error)
	// ForgetOwner drops what it keeps of an owner beside the rows.
	ForgetOwner(ctx context.Context, owner agentsvc.Owner) error
}

// KeywordFinder finds memories by their words, with the full-text search of the database.
type KeywordFinder struct {
	Store *Store
}

// maxCandidates is how many rows the database hands over to be weighed.
const maxCandidates = 200

// FindMemories implements [Finder]. A word weighs the more the fewer of the memories found have it; of equals the later comes
// first.
func (k KeywordFinder) FindMemories(ctx context.Context, owner agentsvc.Owner, question string, limit int, onlyRelevant bool) ([]Memory, error) {
	query := questionWords(question)
	if len(query) == 0 {
		return nil, nil
	}
	found, err := k.Store.matchWords(ctx, owner, query)
	if err != nil {
		return nil, err
	}
	documentCount := map[string]float64{}
	for _, c := range found {
		for _, w := range query {
			if slices.Contains(c.words, w) {
				documentCount[w]++
			}
		}
	}
	weight := func(w string) float64 { return math.Log(1 + float64(len(found))/max(documentCount[w], 0.5)) }
	for i := range found {
		for _, w := range query {
			if slices.Contains(found[i].words, w) {
				found[i].score += weight(w)
			}
		}
	}
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

// ForgetOwner implements [Finder]: there is nothing beside the rows.
func (KeywordFinder) ForgetOwner(context.Context, agentsvc.Owner) error { return nil }

// minScore returns the score from which a memory has to do with a question: a quarter of what its four weightiest words
// weigh.
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

// candidate is a memory that has some of the words of a question.
type candidate struct {
	Memory
	words []string
	score float64
}

// matchWords asks the full-text index for memories that have any of the words, those with most of them first. It is the
// one place where the engines differ: the index of PostgreSQL is a column of the row, that of SQLite a table of its
// own whose first column stands for the owner.
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
