package calendar

import "time"

// Window is the length of a budget's period, by the calendar of the budget's time zone. At its end the count begins
// again at 0.
type Window string

// The windows. A week begins on Monday (ISO 8601). Total never ends.
const (
	Minute Window = "minute"
	Hour   Window = "hour"
	Day    Window = "day"
	Week   Window = "week"
	Month  Window = "month"
	Year   Window = "year"
	Total  Window = "total"
)

// Windows are all windows, the shortest first. Validation and the API's error texts use it.
var Windows = []Window{Minute, Hour, Day, Week, Month, Year, Total}

// totalBegin is the stored begin of the [Total] window, which has none.
var totalBegin = time.UnixMicro(0).UTC()

// Bounds returns the begin of the window that contains at, and the begin of the next one, which is zero for [Total].
// Days follow the local calendar: one on which the clocks change has 23 or 25 hours. Hours and minutes have their fixed
// length: an hour that the clocks repeat is two windows.
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
		// Weekday counts from Sunday; (n+6)%7 counts from Monday.
		day -= (int(local.Weekday()) + 6) % 7
		return dayBegin(year, month, day, zone), dayBegin(year, month, day+7, zone)
	case Month:
		return dayBegin(year, month, 1, zone), dayBegin(year, month+1, 1, zone)
	case Year:
		return dayBegin(year, time.January, 1, zone), dayBegin(year+1, time.January, 1, zone)
	}
	return totalBegin, time.Time{}
}

// clockInterval returns the bounds of the interval of length d, aligned to the local clock, that contains local. The
// shift by the zone's offset matters where it is not a whole number of hours, such as +05:30.
func clockInterval(local time.Time, d time.Duration) (since, until time.Time) {
	_, offset := local.Zone()
	shift := time.Duration(offset) * time.Second
	since = local.UTC().Add(shift).Truncate(d).Add(-shift)
	return since, since.Add(d)
}

// dayBegin returns the first instant of a local day. Where the clocks are put forward at midnight, 00:00 does not exist
// and time.Date may return an instant of the day before: then the day begins an hour or more later.
func dayBegin(year int, month time.Month, day int, zone *time.Location) time.Time {
	noon := time.Date(year, month, day, 12, 0, 0, 0, zone)
	t := time.Date(year, month, day, 0, 0, 0, 0, zone)
	for t.Day() != noon.Day() {
		t = t.Add(time.Hour)
	}
	return t.UTC()
}
