package trigger

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // embeds the time zone database, so that zones are known on every host

	cron "github.com/netresearch/go-cron"

	"stoa/agentsvc"
)

// Cron is a schedule of five cron fields in the local time of a time zone. It is immutable.
//
// Where the clocks are put forward, a tick at a local time that does not exist comes at the first instant after the
// gap. Where they are put back, a tick at a local time that occurs twice comes at the first. A schedule that has ticks
// in every hour follows elapsed time instead: it neither skips the repeated hour nor runs more often in it.
type Cron struct {
	// text is the five fields, with single spaces.
	text     string
	location *time.Location
	// wallSchedule computes ticks in a zone without clock changes (UTC). Its times are local times, to be converted by
	// firstInstant.
	wallSchedule *cron.SpecSchedule
	// everyHour is set if the hour field allows all hours.
	everyHour bool
}

// allHours has a bit for each hour, as the library represents the field *.
const allHours = 1<<24 - 1

// maxSearchYears bounds the search for the next tick. The 29th of February is at most eight years away.
const maxSearchYears = 10

// cronParser parses five fields. DowOrDom means, as in cron, that a day matches if the day of month or the weekday
// matches.
var cronParser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom).WithMaxSearchYears(maxSearchYears)

// ParseCron parses a schedule: the five fields of cron or a descriptor such as @daily, in an IANA time zone. An error
// is an error with [agentsvc.CodeInvalid] of the field cron or timezone, or joins one of each.
func ParseCron(text, zone string) (*Cron, error) {
	at, err := time.LoadLocation(zone)
	if err != nil || zone == "" || zone == "Local" {
		err = agentsvc.NewInvalidError("timezone", "is no time zone such as Europe/Berlin: %.40q", zone)
		at = time.UTC // the fields are read all the same, for their error
	}
	c, fieldsErr := parseFields(text, at)
	switch {
	case err == nil:
		return c, fieldsErr
	case fieldsErr == nil:
		return nil, err
	}
	return nil, errors.Join(err, fieldsErr)
}

// parseFields is ParseCron with a time zone that has been loaded.
func parseFields(text string, at *time.Location) (*Cron, error) {
	text = strings.Join(strings.Fields(text), " ")
	switch {
	case strings.Contains(text, "="):
		return nil, agentsvc.NewInvalidError("cron", "contains a time zone: set timezone instead")
	case strings.HasPrefix(text, "@every"):
		return nil, agentsvc.NewInvalidError("cron", "must give times, not an interval: */10 * * * * is every ten minutes")
	case strings.Count(text, " ") == 5:
		return nil, agentsvc.NewInvalidError("cron", "has six fields: a schedule has five, minute, hour, day, month and weekday")
	}
	parsed, err := cronParser.Parse(text)
	spec, ok := parsed.(*cron.SpecSchedule)
	if err != nil || !ok {
		return nil, agentsvc.NewInvalidError("cron", "is no schedule of minute, hour, day, month and weekday: %.120v", err)
	}
	spec.Location = time.UTC
	c := &Cron{text, at, spec, spec.Hour&allHours == allHours}
	if c.Next(time.Now()).IsZero() {
		return nil, agentsvc.NewInvalidError("cron", "matches no day within %d years", maxSearchYears)
	}
	return c, nil
}

// Location returns the time zone of the schedule.
func (c *Cron) Location() *time.Location { return c.location }

// String returns the schedule as [ParseCronSpec] parses it: the time zone, a space, the fields. It is stored in column
// schedule.spec and identifies the schedule.
func (c *Cron) String() string { return c.location.String() + " " + c.text }

// ParseCronSpec parses the result of [Cron.String].
func ParseCronSpec(spec string) (*Cron, error) {
	zone, text, _ := strings.Cut(spec, " ")
	c, err := ParseCron(text, zone)
	if err != nil {
		return nil, fmt.Errorf("read the schedule %q: %w", spec, err)
	}
	return c, nil
}

// Next returns the first tick after a time, the zero time if there is none within maxSearchYears.
func (c *Cron) Next(after time.Time) time.Time {
	if c.everyHour {
		return c.nextEveryHour(after)
	}
	for w := c.wallSchedule.Next(wallClock(after.In(c.location))); !w.IsZero(); w = c.wallSchedule.Next(w) {
		// After a repeated hour the instant of a local time can be before after: then try the next local time.
		if at := c.firstInstant(w); at.After(after) {
			return at
		}
	}
	return time.Time{}
}

// nextEveryHour is Next for a schedule with ticks in every hour. Between two clock changes it uses the offset of that
// interval.
func (c *Cron) nextEveryHour(after time.Time) time.Time {
	for {
		here := after.In(c.location)
		w := c.wallSchedule.Next(wallClock(here))
		if w.IsZero() {
			return w
		}
		_, offset := here.Zone()
		at := w.Add(-time.Duration(offset) * time.Second)
		_, end := here.ZoneBounds()
		if end.IsZero() || at.Before(end) {
			return at.In(c.location)
		}
		// The clocks change before this tick. The first instant after the change may be a tick itself.
		if first := c.wallSchedule.Next(wallClock(end.In(c.location)).Add(-time.Second)); first.Equal(wallClock(end.In(c.location))) {
			return end.In(c.location)
		}
		after = end
	}
}

// LatestTick returns the last tick that is not after now, or from if there is none after from. It searches backwards in
// growing steps, so that a schedule that was not run for months does not enumerate all its ticks.
func (c *Cron) LatestTick(from, now time.Time) time.Time {
	latest := from
	for back := time.Hour; ; back *= 8 {
		at := c.Next(now.Add(-back))
		if now.Add(-back).Before(from) {
			at = from
		}
		for ; !at.IsZero() && !at.After(now); at = c.Next(at) {
			latest = at
		}
		if latest.After(from) || !now.Add(-back).After(from) {
			return latest
		}
	}
}

// wallClock returns the local time of t as a time in UTC, where arithmetic has no clock changes.
func wallClock(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// firstInstant returns the first instant whose local time is w. If there is none, because the clocks are put forward
// over w, it returns the first instant with a later local time.
func (c *Cron) firstInstant(w time.Time) time.Time {
	at := time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), w.Second(), 0, c.location)
	start, end := at.ZoneBounds()
	switch shown := wallClock(at); {
	case shown.After(w):
		return start
	case shown.Before(w):
		return end
	case start.IsZero():
		return at
	}
	// If w occurs twice, time.Date may have returned the second instant. The first one has the offset from before the
	// change.
	_, before := start.Add(-time.Second).In(c.location).Zone()
	if earlier := w.Add(-time.Duration(before) * time.Second); earlier.Before(start) {
		return earlier.In(c.location)
	}
	return at
}
