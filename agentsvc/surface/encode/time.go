package encode

import "time"

// FormatTime returns t as RFC 3339 in UTC with milliseconds.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }
