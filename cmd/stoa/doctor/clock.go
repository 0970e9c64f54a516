package doctor

import (
	"fmt"
	"time"
)

const (
	// maxSkew is what the verification of tokens allows: with more, a process refuses tokens that others have issued.
	maxSkew = time.Minute
	// noticeableSkew is more than clocks that are synchronised differ.
	noticeableSkew = 5 * time.Second
)

// checkClock compares the clock of another machine, which was read between began and ended, with that of this process. The
// other clock is wrong by at least what is outside of this interval.
func checkClock(name, whose string, other, began, ended time.Time) Check {
	const action = "synchronise the clocks of both machines, with chrony or systemd-timesyncd"
	skew := time.Duration(0)
	direction := "ahead of"
	switch {
	case other.Before(began):
		skew, direction = began.Sub(other), "behind"
	case other.After(ended):
		skew = other.Sub(ended)
	}
	detail := fmt.Sprintf("%s is %s %s this process", whose, skew.Round(time.Millisecond), direction)
	switch {
	case skew >= maxSkew:
		return fail(name, detail+": tokens are refused", action)
	case skew >= noticeableSkew:
		return warn(name, detail, action)
	}
	return pass(name, "%s and this process differ by less than %s", whose, noticeableSkew)
}
