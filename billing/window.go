package billing

import "time"

// Window is how long a budget lasts until it begins anew, by the calendar of its time zone.
type Window string

// The windows. A week begins on Monday (ISO 8601); Total never ends.
const (
	Minute Window = "minute"
	Hour   Window = "hour"
	Day    Window = "day"
	Week   Window = "week"
	Month  Window = "month"
	Year   Window = "year"
	Total  Window = "total"
)

// Windows are all of them.
var Windows = []Window{Minute, Hour, Day, Week, Month, Year, Total}

// begins is the time that stands for the beginning of what has none.
var begins = time.UnixMicro(0).UTC()

// Bounds returns when the window that at lies in began, and when the next one begins, which is zero for [Total]. A day on
// which clocks are put forward or back has 23 or 25 hours; an hour that comes twice is two.
func (w Window) Bounds(at time.Time, zone *time.Location) (since, until time.Time) {
	local := at.In(zone)
	year, month, day := local.Date()
	switch w {
	case Minute:
		return within(local, time.Minute)
	case Hour:
		return within(local, time.Hour)
	case Day:
		return midnight(year, month, day, zone), midnight(year, month, day+1, zone)
	case Week:
		day -= (int(local.Weekday()) + 6) % 7
		return midnight(year, month, day, zone), midnight(year, month, day+7, zone)
	case Month:
		return midnight(year, month, 1, zone), midnight(year, month+1, 1, zone)
	case Year:
		return midnight(year, time.January, 1, zone), midnight(year+1, time.January, 1, zone)
	}
	return begins, time.Time{}
}

// within returns the bounds of the stretch of length d, as clocks show it, that local lies in.
func within(local time.Time, d time.Duration) (since, until time.Time) {
	_, offset := local.Zone()
	shift := time.Duration(offset) * time.Second
	since = local.UTC().Add(shift).Truncate(d).Add(-shift)
	return since, since.Add(d)
}

// midnight is when a day begins. Where clocks are put forward at midnight that is later.
func midnight(year int, month time.Month, day int, zone *time.Location) time.Time {
	noon := time.Date(year, month, day, 12, 0, 0, 0, zone)
	t := time.Date(year, month, day, 0, 0, 0, 0, zone)
	for t.Day() != noon.Day() {
		t = t.Add(time.Hour)
	}
	return t.UTC()
}
