package ratelimit

import "time"

// Window is the time in which a limit holds: one of the calendar's, in UTC. A week begins on Monday, a month is as long
// as it is.
type Window string

// The windows.
const (
	Minute Window = "minute"
	Hour   Window = "hour"
	Day    Window = "day"
	Week   Window = "week"
	Month  Window = "month"
)

// BoundsAt returns the beginning of the window that t is in, and that of the next.
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
