package main

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// busiest gives the names it meets most often labels of their own and calls the rest "other", so that the number of
// labels stays bounded. Every ten minutes the labels go to whoever was busiest lately.
type busiest struct {
	mu      sync.Mutex
	max     int
	counts  map[string]int64
	labels  map[string]bool
	counted time.Time
}

// other is the label of whoever has none of their own.
const other = "other"

// maxCounted bounds the names that are counted between two rounds.
const maxCounted = 10_000

func newBusiest(limit int) *busiest {
	return &busiest{max: limit, counts: map[string]int64{}, labels: map[string]bool{}, counted: time.Now()}
}

func (b *busiest) label(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.counted) > 10*time.Minute {
		b.round()
	}
	if _, ok := b.counts[name]; ok || len(b.counts) < maxCounted {
		b.counts[name]++
	}
	if !b.labels[name] {
		if len(b.labels) >= b.max {
			return other
		}
		b.labels[name] = true
	}
	return name
}

// round hands the labels out anew and halves the counts, so that what was busy long ago fades.
func (b *busiest) round() {
	b.counted = time.Now()
	names := slices.SortedFunc(maps.Keys(b.counts), func(x, y string) int {
		return cmp.Or(cmp.Compare(b.counts[y], b.counts[x]), cmp.Compare(x, y))
	})
	clear(b.labels)
	for _, n := range names[:min(len(names), b.max)] {
		b.labels[n] = true
	}
	for n, c := range b.counts {
		if b.counts[n] = c / 2; c < 2 {
			delete(b.counts, n)
		}
	}
}
