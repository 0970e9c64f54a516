package metrics

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// topK bounds the number of values of a metric's label: the names that occur most often are labels of their own, the
// others share "other". The names with a label are chosen again every ten minutes by their recent counts. It is safe
// for concurrent use.
type topK struct {
	// mu guards the fields below it but maxLabels, which newTopK sets.
	mu        sync.Mutex
	maxLabels int
	counts    map[string]int64 // occurrences by name, halved every ten minutes
	labels    map[string]bool  // names that have a label of their own
	rankedAt  time.Time        // last call of rankNames
}

// otherLabel is the label that names without a label of their own share.
const otherLabel = "other"

// maxCountedNames bounds the memory of counts: names beyond it are not counted until the next ranking has removed
// idle ones.
const maxCountedNames = 10_000

// newTopK returns a topK that gives at most limit names a label of their own.
func newTopK(limit int) *topK {
	return &topK{maxLabels: limit, counts: map[string]int64{}, labels: map[string]bool{}, rankedAt: time.Now()}
}

// labelFor counts an occurrence of name and returns its label: name or otherLabel.
func (b *topK) labelFor(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.rankedAt) > 10*time.Minute {
		b.rankNames()
	}
	// A name beyond the bound gets no count, and so no label at the next ranking either.
	if _, ok := b.counts[name]; ok || len(b.counts) < maxCountedNames {
		b.counts[name]++
	}
	// Until the next ranking a label that is still free goes to the first name that needs one.
	if !b.labels[name] {
		if len(b.labels) >= b.maxLabels {
			return otherLabel
		}
		b.labels[name] = true
	}
	return name
}

// rankNames gives the labels to the names with the highest counts and halves all counts, so that a name that was busy
// long ago loses its rank. The caller holds b.mu.
func (b *topK) rankNames() {
	b.rankedAt = time.Now()
	names := slices.SortedFunc(maps.Keys(b.counts), func(x, y string) int {
		return cmp.Or(cmp.Compare(b.counts[y], b.counts[x]), cmp.Compare(x, y))
	})
	clear(b.labels)
	for _, n := range names[:min(len(names), b.maxLabels)] {
		b.labels[n] = true
	}
	// A count of 0 or 1 becomes 0 and is removed, which frees memory for new names.
	for n, c := range b.counts {
		if b.counts[n] = c / 2; c < 2 {
			delete(b.counts, n)
		}
	}
}
