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

// fingerprint is what near-duplicates have in common.
type fingerprint map[uint64]struct{}

// newFingerprint returns the hashes of the shingles of a text; of a short text its words as one shingle.
func newFingerprint(seed maphash.Seed, text string) fingerprint {
	all := words.List(text)
	f := fingerprint{}
	for i := range max(1, len(all)-shingleWords+1) {
		var h maphash.Hash
		h.SetSeed(seed)
		for _, w := range all[i:min(i+shingleWords, len(all))] {
			_, _ = h.WriteString(w)
			_ = h.WriteByte(0)
		}
		f[h.Sum64()] = struct{}{}
		if len(f) == maxShingles {
			break
		}
	}
	return f
}

// resembles reports whether the texts of two fingerprints are near-duplicates.
func (f fingerprint) resembles(other fingerprint) bool {
	small, large := f, other
	if len(small) > len(large) {
		small, large = large, small
	}
	// The overlap is at most the ratio of the sizes.
	if float64(len(small)) < duplicateOverlap*float64(len(large)) {
		return false
	}
	common := 0
	for h := range small {
		if _, ok := large[h]; ok {
			common++
		}
	}
	return float64(common) >= duplicateOverlap*float64(len(f)+len(other)-common)
}

// collapseDuplicates removes the chunks whose text nearly equals that of a better one. Chunks of one document that
// overlap are none: they are joined later.
func collapseDuplicates(ranked []candidate) []candidate {
	seed := maphash.MakeSeed()
	var kept []candidate
	var prints []fingerprint
	for _, c := range ranked {
		f := newFingerprint(seed, c.Text)
		isDuplicate := false
		for i, k := range kept {
			isOverlap := k.Document == c.Document && c.Start < k.End && k.Start < c.End
			if !isOverlap && f.resembles(prints[i]) {
				isDuplicate = true
				break
			}
		}
		if !isDuplicate {
			kept, prints = append(kept, c), append(prints, f)
		}
	}
	return kept
}
