package encode

import "time"

// FormatTime returns t as RFC 3339 in UTC with milliseconds.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// FormatOptionalTime is [FormatTime] for a time that may be missing: it returns nil for the zero time.
func FormatOptionalTime(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	text := FormatTime(t)
	return &text
}
