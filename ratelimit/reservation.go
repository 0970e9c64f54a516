package ratelimit

import (
	"encoding/json"
	"time"
)

// TokenReservation is the number of tokens that a call reserves until its usage is known. It is stored with the run, in the
// column reserved, so that any process can settle it. The zero value reserves nothing.
type TokenReservation struct {
	// Tokens is the estimate; each rule reserves at most its limit of it.
	Tokens int64
	// At is the time of the reservation by the backend's clock, which determines the windows it belongs to.
	At time.Time
	// Times are the times by the clocks of several backends, in the order of the limiter's rule sets; nil where all of
	// them have At. Two clocks may be on different sides of the end of a window.
	Times []time.Time
}

// encodedReservation is the JSON form of a stored TokenReservation.
type encodedReservation struct {
	Tokens int64   `json:"tokens"`
	At     int64   `json:"at"` // microseconds since 1970, as in Times
	Times  []int64 `json:"times,omitempty"`
}

// EncodeText returns the text that [ParseTokenReservation] parses, "" for the zero value.
func (r TokenReservation) EncodeText() string {
	if r.Tokens == 0 {
		return ""
	}
	n := encodedReservation{Tokens: r.Tokens, At: r.At.UnixMicro()}
	for _, t := range r.Times {
		n.Times = append(n.Times, t.UnixMicro())
	}
	raw, _ := json.Marshal(n)
	return string(raw)
}

// ParseTokenReservation parses a stored reservation. An unreadable one counts as none: what it reserved ends with its
// window.
func ParseTokenReservation(note string) TokenReservation {
	var n encodedReservation
	if note == "" || json.Unmarshal([]byte(note), &n) != nil || n.Tokens <= 0 {
		return TokenReservation{}
	}
	r := TokenReservation{Tokens: n.Tokens, At: time.UnixMicro(n.At).UTC()}
	for _, t := range n.Times {
		r.Times = append(r.Times, time.UnixMicro(t).UTC())
	}
	return r
}

// timeAt returns the time of the reservation by the clock of the i-th of n backends. If the configuration has another
// number of backends since, it is At.
func (r TokenReservation) timeAt(i, n int) time.Time {
	if len(r.Times) == n {
		return r.Times[i]
	}
	return r.At
}
