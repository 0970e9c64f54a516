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

// totalBegin is the time that stands for the beginning of what has none.
var totalBegin = time.UnixMicro(0).UTC()

// Bounds returns when the window that at lies in began, and when the next one begins, which is zero for [Total]. A day on
// which clocks are put forward or back has 23 or 25 hours; an hour that comes twice is two.
func (w Window) Bounds(at time.Time, zone *time.Location) (since, until time.Time) {
	local := at.In(zone)
	year, month, day := local.Date()
	switch w {
	case Minute:
		return clockInterval(local, time.Minute)
	case Hour:
		return clockInterval(local, time.Hour)
	case Day:
		return dayBegin(year, month, day, zone), dayBegin(year, month, day+1, zone)
	case Week:
		day -= (int(local.Weekday()) + 6) % 7
		return dayBegin(year, month, day, zone), dayBegin(year, month, day+7, zone)
	case Month:
		return dayBegin(year, month, 1, zone), dayBegin(year, month+1, 1, zone)
	case Year:
		return dayBegin(year, time.January, 1, zone), dayBegin(year+1, time.January, 1, zone)
	}
	return totalBegin, time.Time{}
}

// clockInterval returns the bounds of the stretch of length d, as clocks show it, that local lies in.
func clockInterval(local time.Time, d time.Duration) (since, until time.Time) {
	_, offset := local.Zone()
	shift := time.Duration(offset) * time.Second
	since = local.UTC().Add(shift).Truncate(d).Add(-shift)
	return since, since.Add(d)
}

// dayBegin is when a day begins. Where clocks are put forward at midnight that is later.
func dayBegin(year int, month time.Month, day int, zone *time.Location) time.Time {
	noon := time.Date(year, month, day, 12, 0, 0, 0, zone)
	t := time.Date(year, month, day, 0, 0, 0, 0, zone)
	for t.Day() != noon.Day() {
		t = t.Add(time.Hour)
	}
	return t.UTC()
}
