package main

import (
	"fmt"
	"slices"
)

// series is one figure, measured several times.
type series []float64

// median is the middle one, or the mean of the two in the middle; 0 of none.
func (s series) median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	mid := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[mid-1] + sorted[mid]) / 2
	}
	return sorted[mid]
}

// spread is how far apart the extremes are, as a share of the median.
func (s series) spread() float64 {
	if len(s) == 0 || s.median() == 0 {
		return 0
	}
	return (slices.Max(s) - slices.Min(s)) / s.median()
}

// over divides figure by figure: both series were measured in the same rounds.
func (s series) over(base series) series {
	out := make(series, 0, len(s))
	for i := range min(len(s), len(base)) {
		if base[i] > 0 {
			out = append(out, s[i]/base[i])
		}
	}
	return out
}

// String is the median and, where there is more than one, the extremes.
func (s series) String() string {
	switch len(s) {
	case 0:
		return "none"
	case 1:
		return number(s[0])
	}
	return fmt.Sprintf("%s (%s to %s)", number(s.median()), number(slices.Min(s)), number(slices.Max(s)))
}

func number(f float64) string {
	switch {
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// collect makes a series of one figure of each item.
func collect[T any](items []T, figure func(T) float64) series {
	out := make(series, 0, len(items))
	for _, it := range items {
		out = append(out, figure(it))
	}
	return out
}
