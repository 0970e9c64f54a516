package calendar_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"stoa/billing/calendar"
)

func TestWindows(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, zone, at, since, until string
		window                       calendar.Window
	}{
		{"minute", "UTC", "2026-03-01T10:20:30Z", "2026-03-01T10:20:00Z", "2026-03-01T10:21:00Z", calendar.Minute},
		{"hour of a zone between hours", "Asia/Kolkata", "2026-03-01T10:20:30Z", "2026-03-01T09:30:00Z", "2026-03-01T10:30:00Z", calendar.Hour},
		{"first of two hours that are called alike", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", calendar.Hour},
		{"second of them", "Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z", calendar.Hour},
		{"day", "UTC", "2026-03-01T23:59:59Z", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z", calendar.Day},
		{"day elsewhere", "America/New_York", "2026-03-02T03:00:00Z", "2026-03-01T05:00:00Z", "2026-03-02T05:00:00Z", calendar.Day},
		{"day of 23 hours", "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", calendar.Day},
		{"day of 25 hours", "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", calendar.Day},
		{"day without a midnight", "America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z", calendar.Day},
		{"day before it", "America/Sao_Paulo", "2018-11-04T02:59:59Z", "2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z", calendar.Day},
		{"week from Monday", "UTC", "2026-03-01T12:00:00Z", "2026-02-23T00:00:00Z", "2026-03-02T00:00:00Z", calendar.Week},
		{"Monday", "UTC", "2026-03-02T00:00:00Z", "2026-03-02T00:00:00Z", "2026-03-09T00:00:00Z", calendar.Week},
		{"week over a change of clocks", "Europe/Berlin", "2026-03-29T21:59:59Z", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z", calendar.Week},
		{"end of a month", "UTC", "2026-02-28T23:59:59Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z", calendar.Month},
		{"leap month", "UTC", "2028-02-29T23:59:59Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z", calendar.Month},
		{"next month already", "Pacific/Auckland", "2026-01-31T11:00:00Z", "2026-01-31T11:00:00Z", "2026-02-28T11:00:00Z", calendar.Month},
		{"December", "Europe/Berlin", "2026-12-31T22:59:59Z", "2026-11-30T23:00:00Z", "2026-12-31T23:00:00Z", calendar.Month},
		{"year", "Europe/Berlin", "2026-07-01T00:00:00Z", "2025-12-31T23:00:00Z", "2026-12-31T23:00:00Z", calendar.Year},
		{"total", "UTC", "2026-07-01T00:00:00Z", "1970-01-01T00:00:00Z", "", calendar.Total},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			since, until := tt.window.Bounds(parseTime(t, tt.at), loadLocation(t, tt.zone))
			if !since.Equal(parseTime(t, tt.since)) || !until.Equal(parseTime(t, tt.until)) {
				t.Errorf("from %v to %v, want %s to %s", since.UTC(), until.UTC(), tt.since, tt.until)
			}
		})
	}
}

func parseTime(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func loadLocation(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// TestWindowsTile checks for random zones and times that windows follow each other without a gap, and that a time is
// within its own window.
func TestWindowsTile(t *testing.T) {
	t.Parallel()
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Kolkata", "Asia/Kathmandu", "Pacific/Auckland", "Africa/Cairo"}
	rapid.Check(t, func(r *rapid.T) {
		zone := loadLocation(t, rapid.SampledFrom(zones).Draw(r, "zone"))
		window := rapid.SampledFrom(calendar.Windows).Draw(r, "window")
		at := time.Unix(rapid.Int64Range(1_000_000_000, 2_000_000_000).Draw(r, "at"), 0)
		since, until := window.Bounds(at, zone)
		if at.Before(since) || !until.IsZero() && !at.Before(until) {
			r.Fatalf("%v lies not in %v to %v", at.UTC(), since, until)
		}
		if until.IsZero() {
			return
		}
		if next, _ := window.Bounds(until, zone); !next.Equal(until) {
			r.Fatalf("after %v comes %v", until, next)
		}
		if first, last := window.Bounds(until.Add(-time.Microsecond), zone); !first.Equal(since) || !last.Equal(until) {
			r.Fatalf("just before the end of %v to %v it is %v to %v", since, until, first, last)
		}
	})
}
