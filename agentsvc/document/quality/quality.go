// Package quality measures how well a search finds what is relevant: recall, the rank of the first hit, and normalised
// discounted cumulative gain. Relevance is binary: a document is relevant to a question or it is not.
package quality

import (
	"math"
	"slices"
)

// Scores are the measures of a search, of one question or as the mean of many. All are from 0 to 1.
type Scores struct {
	Recall1  float64 `json:"recall@1"`
	Recall5  float64 `json:"recall@5"`
	Recall10 float64 `json:"recall@10"`
	MRR      float64 `json:"mrr"`
	NDCG10   float64 `json:"ndcg@10"`
}

// Score returns the measures of one question. found are the documents that were found, the best first; a repetition
// counts at its first rank alone. relevant are those that answer the question.
func Score(found, relevant []string) Scores {
	var ranked []string
	for _, id := range found {
		if !slices.Contains(ranked, id) {
			ranked = append(ranked, id)
		}
	}
	relevant = slices.Compact(slices.Sorted(slices.Values(relevant)))
	return Scores{
		recall(ranked, relevant, 1), recall(ranked, relevant, 5), recall(ranked, relevant, 10), reciprocalRank(ranked, relevant), ndcg(ranked, relevant, 10),
	}
}

// Mean returns the mean of the measures of several questions, zeros for none.
func Mean(all []Scores) (mean Scores) {
	for _, s := range all {
		n := float64(len(all))
		mean.Recall1 += s.Recall1 / n
		mean.Recall5 += s.Recall5 / n
		mean.Recall10 += s.Recall10 / n
		mean.MRR += s.MRR / n
		mean.NDCG10 += s.NDCG10 / n
	}
	return mean
}

// recall returns which part of relevant is among the first k of ranked. With more than k relevant documents, k of them
// are all that can be found.
func recall(ranked, relevant []string, k int) float64 {
	if len(relevant) == 0 {
		return 0
	}
	hits := 0
	for _, id := range ranked[:min(k, len(ranked))] {
		if slices.Contains(relevant, id) {
			hits++
		}
	}
	return float64(hits) / float64(min(k, len(relevant)))
}

// reciprocalRank returns 1/rank of the first relevant document, 0 if none was found.
func reciprocalRank(ranked, relevant []string) float64 {
	for i, id := range ranked {
		if slices.Contains(relevant, id) {
			return 1 / float64(i+1)
		}
	}
	return 0
}

// ndcg returns the discounted cumulative gain of the first k of ranked, as a part of the best that is possible.
func ndcg(ranked, relevant []string, k int) float64 {
	var gain, best float64
	for i := range k {
		discount := 1 / math.Log2(float64(i+2))
		if i < len(ranked) && slices.Contains(relevant, ranked[i]) {
			gain += discount
		}
		if i < len(relevant) {
			best += discount
		}
	}
	if best == 0 {
		return 0
	}
	return gain / best
}
