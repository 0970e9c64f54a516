// Package duration parses the durations that people write: in configurations, flags of client commands and bodies of
// the admin API. It is Go's format and days.
package duration

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"
)

// day is 24 hours, whatever the calendar says: a duration has no time zone.
const day = 24 * time.Hour

// daysForm matches a duration that begins with days. Go's format has no unit that is longer than an hour.
var daysForm = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)d(.*)$`)

// Parse parses a duration such as 90s, 1h30m, 30d or 1d12h. A day is 24 hours and comes first.
func Parse(text string) (time.Duration, error) {
	m := daysForm.FindStringSubmatch(text)
	if m == nil {
		return time.ParseDuration(text)
	}
	days, err := strconv.ParseFloat(m[1], 64)
	if err != nil || days*float64(day) >= math.MaxInt64 {
		return 0, fmt.Errorf("duration %q is too long", text)
	}
	sum := time.Duration(days * float64(day))
	if m[2] == "" {
		return sum, nil
	}
	remainder, err := time.ParseDuration(m[2])
	if err != nil || remainder < 0 || remainder > math.MaxInt64-sum {
		return 0, fmt.Errorf("invalid duration %q", text)
	}
	return sum + remainder, nil
}

// Duration is a duration that flags can hold.
type Duration time.Duration

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	*d = Duration(parsed)
	return err
}
