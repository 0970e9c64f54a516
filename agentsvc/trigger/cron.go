package trigger

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // zones are known wherever the program runs

	cron "github.com/netresearch/go-cron"

	"stoa/agentsvc"
)

// Cron is a schedule in the time of a place.
//
// Where clocks are put forward, a tick whose local time is left out comes at the first moment after; where they are put
// back, one whose local time comes twice comes at the first. A schedule of every hour follows the time that passes
// instead: it neither skips the repeated hour nor runs more often.
type Cron struct {
	text         string
	location     *time.Location
	wallSchedule *cron.SpecSchedule // of a clock that is never changed
	everyHour    bool               // hour
}

const allHours = 1<<24 - 1

// maxSearchYears bounds how far away a tick may be; the 29th of February is eight years away at most.
const maxSearchYears = 10 // years

var cronParser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom).WithMaxSearchYears(maxSearchYears)

// ParseCron reads a schedule: the five fields of cron or a name for them such as @daily, in an IANA time zone. What is
// wrong is an [agentsvc.InvalidError] of the field cron or timezone.
func ParseCron(text, zone string) (*Cron, error) {
	at, err := time.LoadLocation(zone)
	if err != nil || zone == "" || zone == "Local" {
		return nil, agentsvc.NewInvalidError("timezone", "is no time zone such as Europe/Berlin: %.40q", zone)
	}
	text = strings.Join(strings.Fields(text), " ")
	switch {
	case strings.Contains(text, "="):
		return nil, agentsvc.NewInvalidError("cron", "holds a time zone, which timezone says")
	case strings.HasPrefix(text, "@every"):
		return nil, agentsvc.NewInvalidError("cron", "must say at what times, not how often: */10 * * * * is every ten minutes")
	case strings.Count(text, " ") == 5:
		return nil, agentsvc.NewInvalidError("cron", "has six fields: there are minute, hour, day, month and weekday, and nothing below a minute")
	}
	parsed, err := cronParser.Parse(text)
	spec, ok := parsed.(*cron.SpecSchedule)
	if err != nil || !ok {
		return nil, agentsvc.NewInvalidError("cron", "is no schedule of minute, hour, day, month and weekday: %.120v", err)
	}
	spec.Location = time.UTC
	c := &Cron{text, at, spec, spec.Hour&allHours == allHours}
	if c.Next(time.Now()).IsZero() {
		return nil, agentsvc.NewInvalidError("cron", "names no day that there is within %d years", maxSearchYears)
	}
	return c, nil
}

// Location is the place in whose time the schedule is.
func (c *Cron) Location() *time.Location { return c.location }

// String is the schedule as [ParseCronSpec] reads it.
func (c *Cron) String() string { return c.location.String() + " " + c.text }

// ParseCronSpec reads what [Cron.String] has written.
func ParseCronSpec(spec string) (*Cron, error) {
	zone, text, _ := strings.Cut(spec, " ")
	c, err := ParseCron(text, zone)
	if err != nil {
		return nil, fmt.Errorf("read the schedule %q: %w", spec, err)
	}
	return c, nil
}

// Next returns the first tick after a time, the zero time if there is none.
func (c *Cron) Next(after time.Time) time.Time {
	if c.everyHour {
		return c.nextEveryHour(after)
	}
	for w := c.wallSchedule.Next(wallClock(after.In(c.location))); !w.IsZero(); w = c.wallSchedule.Next(w) {
		if at := c.firstInstant(w); at.After(after) {
			return at
		}
	}
	return time.Time{}
}

// nextEveryHour is Next for a schedule of every hour: in each stretch between two changes of the clocks it goes by the
// clock of that stretch.
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
		// The clocks change first. Their new time may be a tick from its very first moment.
		if first := c.wallSchedule.Next(wallClock(end.In(c.location)).Add(-time.Second)); first.Equal(wallClock(end.In(c.location))) {
			return end.In(c.location)
		}
		after = end
	}
}

// LatestTick returns the last tick that is not after now, of those from a tick on.
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

// wallClock is what a clock shows, as a time of a place where clocks are never changed.
func wallClock(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// firstInstant returns the first moment at which the place's clocks show w, or where they never do the first at which they show
// more.
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
	_, before := start.Add(-time.Second).In(c.location).Zone()
	if earlier := w.Add(-time.Duration(before) * time.Second); earlier.Before(start) {
		return earlier.In(c.location)
	}
	return at
}
