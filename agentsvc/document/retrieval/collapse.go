package retrieval

import (
	"hash/maphash"

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
// later. Near-duplicates have shingles in common, so that a chunk is compared with those only that have one of its shingles, which
// few have.
type collapser struct {
	seed maphash.Seed
	kept []candidate
	size []int            // the number of shingles of each of kept
	with map[uint64][]int // indexes in kept by shingle
	// Of the chunk that is being compared.
	shingles map[uint64]struct{}
	common   map[int]int // the number of shingles that it has in common with some of kept
	hashes   []uint64    // of its words
}

func newCollapser() *collapser {
	return &collapser{seed: maphash.MakeSeed(), with: map[uint64][]int{}, shingles: map[uint64]struct{}{}, common: map[int]int{}}
}

// add appends a chunk to kept, unless it is a near-duplicate of one of them.
func (x *collapser) add(c candidate) {
	clear(x.common)
	x.readShingles(c.Text)
	for h := range x.shingles {
		for _, k := range x.with[h] {
			x.common[k]++
		}
	}
	for k, common := range x.common {
		other := x.kept[k]
		isOverlap := other.Document == c.Document && c.Start < other.End && other.Start < c.End
		if !isOverlap && float64(common) >= duplicateOverlap*float64(len(x.shingles)+x.size[k]-common) {
			return
		}
	}
	for h := range x.shingles {
		x.with[h] = append(x.with[h], len(x.kept))
	}
	x.kept, x.size = append(x.kept, c), append(x.size, len(x.shingles))
}

// readShingles reads the hashes of the shingles of a text; of a short text its words as one shingle.
func (x *collapser) readShingles(text string) {
	x.hashes = x.hashes[:0]
	for _, w := range words.List(text) {
		x.hashes = append(x.hashes, maphash.String(x.seed, w))
	}
	clear(x.shingles)
	for i := range max(1, len(x.hashes)-shingleWords+1) {
		x.shingles[maphash.Comparable(x.seed, shingleOf(x.hashes[i:]))] = struct{}{}
		if len(x.shingles) == maxShingles {
			break
		}
	}
}

// shingleOf returns the first words of a sequence, fewer at its end.
func shingleOf(hashes []uint64) (s [shingleWords]uint64) {
	copy(s[:], hashes)
	return s
}

// collapseDuplicates returns the chunks that are no near-duplicate of a better one.
func collapseDuplicates(ranked []candidate) []candidate {
	x := newCollapser()
	for _, c := range ranked {
		x.add(c)
	}
	return x.kept
}
