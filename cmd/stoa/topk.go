package main

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// topK gives the names it meets most often labels of their own and calls the rest "other", so that the number of
// labels stays bounded. Every ten minutes the labels go to whoever was busiest lately.
type topK struct {
	mu        sync.Mutex
	maxLabels int
	counts    map[string]int64
	labels    map[string]bool
	rankedAt  time.Time
}

// otherLabel is the label of whoever has none of their own.
const otherLabel = "other"

// maxCountedNames bounds the names that are counted between two rounds.
const maxCountedNames = 10_000

func newTopK(limit int) *topK {
	return &topK{maxLabels: limit, counts: map[string]int64{}, labels: map[string]bool{}, rankedAt: time.Now()}
}

func (b *topK) labelFor(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.rankedAt) > 10*time.Minute {
		b.rankNames()
	}
	if _, ok := b.counts[name]; ok || len(b.counts) < maxCountedNames {
		b.counts[name]++
	}
	if !b.labels[name] {
		if len(b.labels) >= b.maxLabels {
			return otherLabel
		}
		b.labels[name] = true
	}
	return name
}

// rankNames hands the labels out anew and halves the counts, so that what was busy long ago fades.
func (b *topK) rankNames() {
	b.rankedAt = time.Now()
	names := slices.SortedFunc(maps.Keys(b.counts), func(x, y string) int {
		return cmp.Or(cmp.Compare(b.counts[y], b.counts[x]), cmp.Compare(x, y))
	})
	clear(b.labels)
	for _, n := range names[:min(len(names), b.maxLabels)] {
		b.labels[n] = true
	}
	for n, c := range b.counts {
		if b.counts[n] = c / 2; c < 2 {
			delete(b.counts, n)
		}
	}
}
