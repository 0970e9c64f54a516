package hashing_test

import (
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/embedder/hashing"
)

// embed returns the vectors of texts.
func embed(t *testing.T, o embedder.Options, texts ...string) [][]float32 {
	t.Helper()
	vectors, err := hashing.New(o).Embed(t.Context(), agentsvc.Payer{}, embedder.Document, texts)
	if err != nil || len(vectors) != len(texts) {
		t.Fatal(vectors, err)
	}
	return vectors
}

// dot returns the cosine of two vectors of length 1.
func dot(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// TestSimilarity checks that texts are the more similar the more words and parts of words they share.
func TestSimilarity(t *testing.T) {
	t.Parallel()
	v := embed(t, embedder.Options{}, "How long is the warranty?", "The warranty is two years long.", "Warranties of long-lived parts", "Our office opens at nine.",
		"how LONG is the warranty")
	same, words, parts, other := dot(v[0], v[4]), dot(v[0], v[1]), dot(v[0], v[2]), dot(v[0], v[3])
	if math.Abs(same-1) > 1e-6 || words >= same || parts >= words || other >= parts || other > 0.2 {
		t.Errorf("same %.2f, shared words %.2f, shared parts %.2f, another %.2f", same, words, parts, other)
	}
}

// TestVectors checks length and dimension, also for texts without a word, and that many occurrences of a word do not
// drown the others.
func TestVectors(t *testing.T) {
	t.Parallel()
	for _, dimension := range []int{0, 1, 16, 1000} {
		want := dimension
		if want == 0 {
			want = hashing.DefaultDimension
		}
		for i, v := range embed(t, embedder.Options{Dimension: dimension}, "", "?!", "a", "世界", strings.Repeat("word ", 10_000), "\xff\xfe", "\xff\xfe") {
			if len(v) != want || math.Abs(dot(v, v)-1) > 1e-5 {
				t.Errorf("text %d has a vector of %d numbers and the square %v", i, len(v), dot(v, v))
			}
		}
	}
	v := embed(t, embedder.Options{}, "alpha "+strings.Repeat("beta ", 1000), "alpha")
	if got := dot(v[0], v[1]); got < 0.1 {
		t.Errorf("a word among a thousand others of one kind counts %.3f", got)
	}
}

// TestStable checks that vectors are those that earlier versions have stored. If this fails, the model needs another
// name.
func TestStable(t *testing.T) {
	t.Parallel()
	e := hashing.New(embedder.Options{})
	if e.Model() != "hashing/words-trigrams-2/256" {
		t.Error(e.Model())
	}
	text := "The warranty of a Widget 3000 is 24 months, naïve 世界 warranty."
	first := embed(t, embedder.Options{}, text)[0]
	for range 20 {
		if fmt.Sprint(embed(t, embedder.Options{}, text)[0]) != fmt.Sprint(first) {
			t.Fatal("the same text has another vector")
		}
	}
	rounded := ""
	for _, x := range first {
		rounded += fmt.Sprintf("%.4f ", x)
	}
	if got := crc32.ChecksumIEEE([]byte(rounded)); got != 2826674323 {
		t.Errorf("the vector has the checksum %d", got)
	}
}
