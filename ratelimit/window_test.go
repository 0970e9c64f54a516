package ratelimit_test

import (
	"testing"
	"time"

	"stoa/ratelimit"
)

func TestWindows(t *testing.T) {
	t.Parallel()
	const form = "2006-01-02T15:04:05"
	berlin := time.FixedZone("UTC+2", 2*60*60)
	for _, tt := range []struct {
		window     ratelimit.Window
		at         string
		start, end string
	}{
		{ratelimit.Minute, "2026-11-21T10:59:59", "2026-11-21T10:59:00", "2026-11-21T11:00:00"},
		{ratelimit.Minute, "2026-12-31T23:59:00", "2026-12-31T23:59:00", "2027-01-01T00:00:00"},
		{ratelimit.Hour, "2026-11-21T10:00:00", "2026-11-21T10:00:00", "2026-11-21T11:00:00"},
		{ratelimit.Day, "2026-02-28T23:59:59", "2026-02-28T00:00:00", "2026-03-01T00:00:00"},
		{ratelimit.Day, "2028-02-28T23:59:59", "2028-02-28T00:00:00", "2028-02-29T00:00:00"},
		{ratelimit.Day, "2026-03-29T02:30:00", "2026-03-29T00:00:00", "2026-03-30T00:00:00"},  // an hour short in Europe
		{ratelimit.Day, "2026-10-25T02:30:00", "2026-10-25T00:00:00", "2026-10-26T00:00:00"},  // and an hour long
		{ratelimit.Week, "2026-11-16T00:00:00", "2026-11-16T00:00:00", "2026-11-23T00:00:00"}, // a Monday
		{ratelimit.Week, "2026-11-22T23:59:59", "2026-11-16T00:00:00", "2026-11-23T00:00:00"}, // a Sunday
		{ratelimit.Week, "2027-01-01T12:00:00", "2026-12-28T00:00:00", "2027-01-04T00:00:00"},
		{ratelimit.Week, "2024-03-01T00:00:00", "2024-02-26T00:00:00", "2024-03-04T00:00:00"},
		{ratelimit.Month, "2026-01-31T23:59:59", "2026-01-01T00:00:00", "2026-02-01T00:00:00"},
		{ratelimit.Month, "2026-02-28T12:00:00", "2026-02-01T00:00:00", "2026-03-01T00:00:00"},
		{ratelimit.Month, "2028-02-29T12:00:00", "2028-02-01T00:00:00", "2028-03-01T00:00:00"},
		{ratelimit.Month, "2026-12-31T23:59:59", "2026-12-01T00:00:00", "2027-01-01T00:00:00"},
	} {
		t.Run(string(tt.window)+" "+tt.at, func(t *testing.T) {
			t.Parallel()
			at, err := time.Parse(form, tt.at)
			if err != nil {
				t.Fatal(err)
			}
			for _, clock := range []time.Time{at, at.In(berlin)} { // the process's time zone has no effect
				start, end := tt.window.BoundsAt(clock)
				if start.Format(form) != tt.start || end.Format(form) != tt.end {
					t.Errorf("%v to %v, want %s to %s", start, end, tt.start, tt.end)
				}
			}
		})
	}
}

// TestWindowsFollowEachOther checks over four years that each moment is in exactly one window.
func TestWindowsFollowEachOther(t *testing.T) {
	t.Parallel()
	begin := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, w := range []ratelimit.Window{ratelimit.Day, ratelimit.Week, ratelimit.Month} {
		for at := begin; at.Year() < 2028; {
			start, end := w.BoundsAt(at)
			last, next := w.BoundsAt(end.Add(-1))
			if !start.Equal(at) || !last.Equal(start) || !next.Equal(end) || !end.After(start) {
				t.Fatalf("%s around %v is %v to %v, its last moment in %v to %v", w, at, start, end, last, next)
			}
			at = end
		}
	}
}
