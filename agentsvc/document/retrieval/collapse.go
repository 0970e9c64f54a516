package retrieval

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"unicode"
	"unicode/utf8"

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
	seed     uint64 // is random, so that no text can be made to resemble another
	kept     []candidate
	shingles [][]uint64       // of each of kept, ascending
	least    map[uint64][]int // indexes in kept by their least shingles
}

func newCollapser() *collapser {
	return &collapser{seed: rand.Uint64(), least: map[uint64][]int{}}
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
func newShingles(seed uint64, text string) []uint64 {
	hashes := hashWords(seed, text)
	n := min(max(1, len(hashes)-shingleWords+1), maxShingles)
	hashes = append(hashes, make([]uint64, shingleWords)...) // a short text has fewer words
	for i := range n {
		h := seed
		for _, word := range hashes[i : i+shingleWords] {
			h = bits.RotateLeft64(h, 31) ^ word*mixPrime
			h *= mixPrime
		}
		hashes[i] = h
	}
	slices.Sort(hashes[:n])
	return slices.Compact(hashes[:n])
}

// mixPrime spreads the bits of hashes (the constant of xxHash64).
const mixPrime = 0x9E3779B185EBCA87

// hashWords returns the hashes of the words of a text: sequences of letters, digits and marks in lower case, of scripts without spaces each
// character. [words.List] would take most of the time of a search of a small store.
func hashWords(seed uint64, text string) []uint64 {
	hashes := make([]uint64, 0, len(text)/5+2*shingleWords)
	h := seed
	end := func() {
		if h != seed {
			hashes = append(hashes, h)
		}
		h = seed
	}
	for _, r := range text {
		switch {
		case 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
		case 'A' <= r && r <= 'Z':
			r += 'a' - 'A'
		case r < utf8.RuneSelf || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r):
			end()
			continue
		case words.IsUnspacedScript(r):
			end()
		default:
			r = unicode.ToLower(r)
		}
		h = (h ^ uint64(r)) * mixPrime
		if words.IsUnspacedScript(r) {
			end()
		}
	}
	end()
	return hashes
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
