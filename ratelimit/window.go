package ratelimit

import "time"

// Window is the calendar window of a limit, in UTC. A week begins on Monday; months have their different lengths.
type Window string

// The windows.
const (
	Minute Window = "minute"
	Hour   Window = "hour"
	Day    Window = "day"
	Week   Window = "week"
	Month  Window = "month"
)

// BoundsAt returns the start of the window that contains t, and the start of the next one. time.Date normalises days
// and months out of range.
func (w Window) BoundsAt(t time.Time) (start, end time.Time) {
	t = t.UTC()
	year, month, day := t.Date()
	switch w {
	case Minute:
		start = t.Truncate(time.Minute)
		return start, start.Add(time.Minute)
	case Hour:
		start = t.Truncate(time.Hour)
		return start, start.Add(time.Hour)
	case Week:
		sinceMonday := (int(t.Weekday()) + 6) % 7
		return utcDate(year, month, day-sinceMonday), utcDate(year, month, day-sinceMonday+7)
	case Month:
		return utcDate(year, month, 1), utcDate(year, month+1, 1)
	default: // Day
		return utcDate(year, month, day), utcDate(year, month, day+1)
	}
}

func utcDate(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}
