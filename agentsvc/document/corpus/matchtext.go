package corpus

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"strings"

	"stoa/agentsvc/words"
	"stoa/tenancy/db"
)

const (
	// maxRanked bounds the chunks that one search by words ranks. All chunks of a store up to this size are ranked.
	maxRanked = 20_000
	// maxQueryWords bounds the words of a search.
	maxQueryWords = 64
)

// Parameters of BM25: how fast repeated words count less, and how much long chunks count less.
const (
	bm25Saturation = 1.2
	bm25Length     = 0.75
)

// MatchText returns up to limit chunks that have any word of a question (see [words.ExtractQuestion]), best first, with BM25 scores that are the
// same on both engines. The statistics of the ranking are those of the scope, so that scores do not depend on documents that
// the reader may not read. bounded means that so many chunks have one of the words that not all were ranked.
func (s *Search) MatchText(ctx context.Context, scope Scope, question []string, limit int) (found []Match, bounded bool, err error) {
	index := make(map[string]int, len(question))
	var ends wordEnds
	var query []string
	for _, w := range question {
		if _, seen := index[w]; !seen && words.IsWord(w) && len(query) < maxQueryWords {
			index[w] = len(query)
			ends.add(w)
			query = append(query, w)
		}
	}
	if len(query) == 0 || limit <= 0 || scope.isEmpty() {
		return nil, false, nil
	}
	// A word's weight depends on how many chunks have it, which is known after the last row. Until then only the counts of
	// the query's words in each chunk are kept.
	var total, totalWords int64
	var candidates []textCandidate
	frequency := make([]int64, len(query))
	var b db.Batch
	args := s.scopeArgs(scope)
	b.Query(func(r db.Row) error { return r.Scan(&total, &totalWords) },
		`SELECT CAST(COALESCE(SUM(l.chunks), 0) AS BIGINT), CAST(COALESCE(SUM(l.word_count), 0) AS BIGINT) FROM `+s.scopeSQL(), args...)
	match, matchArg := s.matchTextSQL(scope.Store, query)
	b.Query(func(r db.Row) error {
		var c textCandidate
		var text string
		if err := r.Scan(&c.Chunk, &c.Document, &c.Ordinal, &c.words, &text); err != nil {
			return err
		}
		c.counts = make([]uint16, len(query))
		found := false
		for w, rest, more := "", text, true; more; {
			w, rest, more = strings.Cut(rest, " ")
			if !ends.mayHave(w) {
				continue
			}
			if i, ok := index[w]; ok && c.counts[i] < math.MaxUint16 {
				found = true
				if c.counts[i]++; c.counts[i] == 1 {
					frequency[i]++
				}
			}
		}
		if found { // SQLite's index folds more letters than package words does
			candidates = append(candidates, c)
		}
		return nil
	}, match, append(args, matchArg, int64(maxRanked+1))...)
	if err := s.h.Do(ctx, &b); err != nil {
		return nil, false, fmt.Errorf("search words: %w", err)
	}
	if bounded = len(candidates) > maxRanked; bounded {
		candidates = candidates[:maxRanked]
	}
	weights := make([]float64, len(query))
	for i, n := range frequency {
		weights[i] = math.Log(1 + (float64(total)-float64(n)+0.5)/(float64(n)+0.5))
	}
	average := float64(totalWords) / max(float64(total), 1)
	best := newTopMatches(limit)
	for _, c := range candidates {
		c.Score = c.score(weights, average)
		best.add(c.Match)
	}
	return best.sorted(), bounded, nil
}

// wordEnds is a filter of words by length and last byte: nearly all words of a chunk are not in the query, and a look-up in a
// map for each takes a quarter of a search's time.
type wordEnds [256]bool

func (e *wordEnds) add(w string) { e[endOf(w)] = true }

// mayHave returns false for most words that were not added.
func (e *wordEnds) mayHave(w string) bool { return w != "" && e[endOf(w)] }

func endOf(w string) byte { return w[len(w)-1] ^ byte(len(w)<<5) }

// textCandidate is a chunk that has a word of the query.
type textCandidate struct {
	Match
	words  int64    // that the chunk has
	counts []uint16 // of the query's words in the chunk
}

// score returns the BM25 score of c for words of these weights; average is the number of words of an average chunk.
func (c textCandidate) score(weights []float64, average float64) (score float64) {
	length := bm25Saturation * (1 - bm25Length + bm25Length*float64(c.words)/max(average, 1))
	for i, n := range c.counts {
		score += weights[i] * float64(n) * (bm25Saturation + 1) / (float64(n) + length)
	}
	return score
}

// matchTextSQL returns the statement that selects chunks with any word of query in a scope, and its argument $8. $9 is the limit.
// It is the one search in which the engines differ: PostgreSQL filters the rows of the scope by column lexemes, since an index
// of words is never used under forced row-level security; SQLite reads its full-text index, whose column scope stands for
// the store. The words are checked by [words.IsWord], so quoting them is safe.
func (s *Search) matchTextSQL(store string, query []string) (sql, argument string) {
	const columns = `SELECT c.id, c.document, c.ordinal, c.word_count, c.words FROM `
	if s.h.Engine() == db.Postgres {
		return columns + s.scopeSQL() + ` JOIN chunk c` + chunkOfLive + ` WHERE c.lexemes @@ CAST(CAST($8 AS TEXT) AS tsquery) LIMIT $9`,
			`'` + strings.Join(query, `' | '`) + `'`
	}
	scope := strings.ToUpper(hex.EncodeToString([]byte(s.tenant + "\x1f" + store)))
	// CROSS JOIN makes SQLite read the tables in this order. The scope is computed once, not for each chunk.
	return columns + `chunk_words CROSS JOIN chunk c ON c.n = chunk_words.rowid CROSS JOIN ` + s.scopeSQL() + chunkOfLive + `
		WHERE chunk_words MATCH $8 LIMIT $9`,
		`scope : "` + scope + `" AND words : ("` + strings.Join(query, `" OR "`) + `")`
}
