package corpus

import (
	"context"
	"encoding/hex"
	"errors"
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
// same on both engines, in the app's turn. The statistics of the ranking are those of the scope, so that scores do not depend on documents that
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
	if err := scans.Acquire(ctx, s.tenant); err != nil {
		return nil, false, err
	}
	defer scans.Release()
	// A word's weight depends on how many chunks have it, which is known after the last row. Until then only the counts of
	// the query's words in each chunk are kept.
	var candidates []textCandidate
	frequency := make([]int64, len(query))
	var b db.Batch
	in := s.addScopeQuery(&b, scope)
	match, args := s.matchTextSQL(scope, query)
	var id, text db.RowBytes
	var c textCandidate
	var revision int64
	var spare []uint16
	b.Query(func(r db.Row) error {
		if err := r.Scan(&id, &revision, &c.ordinal, &c.words, &text); err != nil {
			return err
		}
		if c.document = in.find(id, revision); c.document < 0 {
			return nil
		}
		if len(spare) < len(query) {
			spare = make([]uint16, 256*len(query))
		}
		c.counts = spare[:len(query):len(query)]
		if !countWords(text, index, &ends, c.counts, frequency) { // SQLite's index folds more letters than package words does
			return nil
		}
		if bounded = len(candidates) == maxRanked; bounded {
			return errEnough
		}
		spare = spare[len(query):]
		candidates = append(candidates, c)
		return nil
	}, match, args...)
	if err := s.h.Do(ctx, &b); err != nil && !errors.Is(err, errEnough) {
		return nil, false, fmt.Errorf("search words: %w", err)
	}
	weights := make([]float64, len(query))
	for i, n := range frequency {
		weights[i] = math.Log(1 + (float64(in.chunks)-float64(n)+0.5)/(float64(n)+0.5))
	}
	average := float64(in.words) / max(float64(in.chunks), 1)
	best := newTopMatches(limit)
	for _, c := range candidates {
		best.add(Match{Document: in.all[c.document].id, Ordinal: c.ordinal, Score: c.score(weights, average)})
	}
	return s.withIDs(best.sorted(), scope, in), bounded, nil
}

// errEnough ends the reading of rows.
var errEnough = errors.New("no more rows are needed")

// countWords adds to counts how often a text has each word of index, and to frequency the words that it has. It reports whether it has any.
func countWords(text []byte, index map[string]int, ends *wordEnds, counts []uint16, frequency []int64) (found bool) {
	for begin := 0; begin < len(text); {
		end := begin
		for end < len(text) && text[end] != ' ' {
			end++
		}
		w := text[begin:end]
		begin = end + 1
		if !ends.mayHave(w) {
			continue
		}
		if i, ok := index[string(w)]; ok && counts[i] < math.MaxUint16 {
			found = true
			if counts[i]++; counts[i] == 1 {
				frequency[i]++
			}
		}
	}
	return found
}

// wordEnds is a filter of words by length and last byte: nearly all words of a chunk are not in the query, and a look-up in a
// map for each takes a quarter of a search's time.
type wordEnds [256]bool

func (e *wordEnds) add(w string) { e[endOf([]byte(w))] = true }

// mayHave returns false for most words that were not added.
func (e *wordEnds) mayHave(w []byte) bool { return len(w) > 0 && e[endOf(w)] }

func endOf(w []byte) byte { return w[len(w)-1] ^ byte(len(w)<<5) }

// textCandidate is a chunk that has a word of the query.
type textCandidate struct {
	document, ordinal int      // the document by its index in scopeRows.all
	words             int64    // that the chunk has
	counts            []uint16 // of the query's words in the chunk
}

// score returns the BM25 score of c for words of these weights; average is the number of words of an average chunk.
func (c textCandidate) score(weights []float64, average float64) (score float64) {
	length := bm25Saturation * (1 - bm25Length + bm25Length*float64(c.words)/max(average, 1))
	for i, n := range c.counts {
		score += weights[i] * float64(n) * (bm25Saturation + 1) / (float64(n) + length)
	}
	return score
}

// matchTextSQL returns the statement that selects the chunks with any word of query which a search of the scope reads.
// It is the one search in which the engines differ: PostgreSQL filters the rows of the store by column lexemes, since an index
// of words is never used under forced row-level security; SQLite reads its full-text index, whose column scope stands for
// the store. The words are checked by [words.IsWord], so quoting them is safe.
func (s *Search) matchTextSQL(scope Scope, query []string) (sql string, args []any) {
	const columns = `SELECT c.document, c.revision, c.ordinal, c.word_count, c.words FROM `
	condition, args, next := s.chunksSQL(scope)
	if s.h.Engine() == db.Postgres {
		return columns + `chunk c WHERE ` + condition + fmt.Sprintf(` AND c.lexemes @@ CAST(CAST($%d AS TEXT) AS tsquery)`, next),
			append(args, `'`+strings.Join(query, `' | '`)+`'`)
	}
	store := strings.ToUpper(hex.EncodeToString([]byte(s.tenant + "\x1f" + scope.Store)))
	// CROSS JOIN makes SQLite read the tables in this order.
	return columns + `chunk_words CROSS JOIN chunk c ON c.n = chunk_words.rowid WHERE ` + fmt.Sprintf(`chunk_words MATCH $%d AND `, next) + condition,
		append(args, `scope : "`+store+`" AND words : ("`+strings.Join(query, `" OR "`)+`")`)
}
