// Package hashing implements embedder.Embedder without a model: the features of a text are its words and their
// sequences of three characters, and each feature adds to one element of the vector that a hash selects, with a sign
// that the hash selects too. Texts are similar if they share words or parts of words; synonyms are not.
//
// It needs no network and costs nothing, and the same text has the same vector in every process and version: for tests,
// demonstrations and the comparison with real models.
package hashing

import (
	"cmp"
	"context"
	"hash/fnv"
	"math"

	"stoa/agentsvc/embedder"
	"stoa/agentsvc/words"
)

// DefaultDimension is the length of vectors if Options.Dimension is 0.
const DefaultDimension = 256

// model names the features and their weights. Another way to make vectors needs another name, since the vectors of
// two ways cannot be compared.
const model = "words-trigrams-2"

// trigramWeight is the weight of a sequence of three characters relative to a whole word.
const trigramWeight = 0.5

// New returns an embedder. Of the options only Dimension is used.
func New(o embedder.Options) embedder.Embedder {
	dimension := cmp.Or(o.Dimension, DefaultDimension)
	return embedder.New("hashing", embedder.Options{Model: model, Dimension: dimension},
		func(ctx context.Context, _ embedder.Purpose, texts []string) ([][]float32, error) {
			vectors := make([][]float32, len(texts))
			for i, text := range texts {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				vectors[i] = embedText(text, dimension)
			}
			return vectors, nil
		})
}

// embedText returns the vector of a text, of length 1. A text without letters and digits has one of its own direction.
func embedText(text string, dimension int) []float32 {
	counts, trigrams := countFeatures(text)
	sums := make([]int64, dimension)
	addFeatures(sums, "w", counts, 1)
	addFeatures(sums, "t", trigrams, trigramWeight)
	square := 0.0
	for _, x := range sums {
		square += float64(x) * float64(x)
	}
	vector := make([]float32, dimension)
	if square == 0 {
		vector[0] = 1
		return vector
	}
	length := math.Sqrt(square)
	for i, x := range sums {
		vector[i] = float32(float64(x) / length)
	}
	return vector
}

// countFeatures counts the words of a text as package words extracts them, without those that nearly every text has, and
// the sequences of three characters in each word with a space before and after it.
func countFeatures(text string) (counts, trigrams map[string]int) {
	counts, trigrams = map[string]int{}, map[string]int{}
	for _, word := range words.List(text) {
		if words.IsCommon(word) {
			continue
		}
		counts[word]++
		runes := []rune(" " + word + " ")
		for i := range len(runes) - 2 {
			trigrams[string(runes[i:i+3])]++
		}
	}
	return counts, trigrams
}

// one is the weight 1 of a feature in a sum. Sums are whole numbers because those do not depend on the order in which
// features are added, which a map does not define.
const one = 1 << 24

// addFeatures adds the features of a kind: the weight times one plus the logarithm of how often each occurs.
func addFeatures(sums []int64, kind string, counts map[string]int, weight float64) {
	for feature, n := range counts {
		h := fnv.New64a()
		_, _ = h.Write([]byte(kind + feature))
		sum := h.Sum64()
		x := int64(math.Round(one * weight * (1 + math.Log(float64(n)))))
		if sum>>63 == 1 {
			x = -x
		}
		sums[sum%uint64(len(sums))] += x
	}
}
