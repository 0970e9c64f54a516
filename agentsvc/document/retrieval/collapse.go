package retrieval

import (
	"hash/maphash"
	"math"
	"slices"

	"stoa/agentsvc/words"
)

const (
	// shingleWords is the number of words of a shingle: a sequence of adjacent words of a text.
	shingleWords = 4
	// duplicateOverlap is the share of shingles that two near-duplicates have in common (Jaccard index).
	duplicateOverlap = 0.8
	// maxShingles bounds the shingles that are compared of a text.
	maxShingles = 1000
)

// collapser removes the chunks whose text nearly equals that of a better one. Chunks of one document that overlap are none: they are joined
// later.
//
// Two texts are compared only if they have one of their least shingles in common: of two whose overlap is at least duplicateOverlap, the
// first n - ceil(duplicateOverlap * n) + 1 of n shingles in any one order share one (prefix filtering; Chaudhuri, Ganti and Kaushik,
// ICDE 2006).
type collapser struct {
	seed     maphash.Seed
	kept     []candidate
	shingles [][]uint64       // of each of kept, ascending
	least    map[uint64][]int // indexes in kept by their least shingles
}

func newCollapser() *collapser {
	return &collapser{seed: maphash.MakeSeed(), least: map[uint64][]int{}}
}

// add appends a chunk to kept, unless it is a near-duplicate of one of them.
func (x *collapser) add(c candidate) {
	s := newShingles(x.seed, c.Text)
	least := s[:len(s)-int(math.Ceil(duplicateOverlap*float64(len(s))))+1]
	for _, h := range least {
		for _, k := range x.least[h] {
			other := x.kept[k]
			isOverlap := other.Document == c.Document && c.Start < other.End && other.Start < c.End
			if !isOverlap && isNearDuplicate(s, x.shingles[k]) {
				return
			}
		}
	}
	for _, h := range least {
		x.least[h] = append(x.least[h], len(x.kept))
	}
	x.kept, x.shingles = append(x.kept, c), append(x.shingles, s)
}

// newShingles returns the hashes of the shingles of a text, ascending; of a short text its words as one shingle.
func newShingles(seed maphash.Seed, text string) []uint64 {
	all := words.List(text)
	hashes := make([]uint64, len(all), len(all)+shingleWords)
	for i, w := range all {
		hashes[i] = maphash.String(seed, w)
	}
	n := min(max(1, len(all)-shingleWords+1), maxShingles)
	hashes = append(hashes, make([]uint64, shingleWords)...) // a short text has fewer words
	for i := range n {
		s := [shingleWords]uint64(hashes[i:])
		hashes[i] = maphash.Comparable(seed, s)
	}
	slices.Sort(hashes[:n])
	return slices.Compact(hashes[:n])
}

// isNearDuplicate reports whether the Jaccard index of two ascending lists is at least duplicateOverlap.
func isNearDuplicate(a, b []uint64) bool {
	common := 0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] < b[j]:
			i++
		case a[i] > b[j]:
			j++
		default:
			common, i, j = common+1, i+1, j+1
		}
	}
	return float64(common) >= duplicateOverlap*float64(len(a)+len(b)-common)
}
