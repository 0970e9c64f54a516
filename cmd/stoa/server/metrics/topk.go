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
func (k *topK) labelFor(name string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.rankedAt) > 10*time.Minute {
		k.rankNames()
	}
	// A name beyond the bound gets no count, and so no label at the next ranking either.
	if _, ok := k.counts[name]; ok || len(k.counts) < maxCountedNames {
		k.counts[name]++
	}
	// Until the next ranking a label that is still free goes to the first name that needs one.
	if !k.labels[name] {
		if len(k.labels) >= k.maxLabels {
			return otherLabel
		}
		k.labels[name] = true
	}
	return name
}

// rankNames gives the labels to the names with the highest counts and halves all counts, so that a name that was busy
// long ago loses its rank. The caller holds k.mu.
func (k *topK) rankNames() {
	k.rankedAt = time.Now()
	names := slices.SortedFunc(maps.Keys(k.counts), func(x, y string) int {
		return cmp.Or(cmp.Compare(k.counts[y], k.counts[x]), cmp.Compare(x, y))
	})
	clear(k.labels)
	for _, n := range names[:min(len(names), k.maxLabels)] {
		k.labels[n] = true
	}
	// A count of 0 or 1 becomes 0 and is removed, which frees memory for new names.
	for n, c := range k.counts {
		if k.counts[n] = c / 2; c < 2 {
			delete(k.counts, n)
		}
	}
}
