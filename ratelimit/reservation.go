package ratelimit

import (
	"encoding/json"
	"time"

	"stoa/agentsvc"
)

// Reservation is the number of tokens that a call reserves until its usage is known. It is stored with the run, in the
// column reserved, so that any process can settle it. The zero value reserves nothing.
type Reservation struct {
	// Tokens is the estimate; each rule reserves at most its limit of it.
	Tokens int64
	// At is the time of the reservation by the backend's clock, which determines the windows it belongs to.
	At time.Time
	// Session is the session under which the call was counted.
	Session agentsvc.ContextID
}

// encodedReservation is the JSON form of a stored Reservation.
type encodedReservation struct {
	Tokens  int64  `json:"tokens"`
	At      int64  `json:"at"` // microseconds since 1970
	Session string `json:"session,omitempty"`
}

// EncodeText returns the text that [ParseReservation] parses, "" for the zero value.
func (r Reservation) EncodeText() string {
	if r.Tokens == 0 {
		return ""
	}
	raw, _ := json.Marshal(encodedReservation{r.Tokens, r.At.UnixMicro(), string(r.Session)})
	return string(raw)
}

// ParseReservation parses a stored reservation. An unreadable one counts as none: what it reserved ends with its
// window.
func ParseReservation(note string) Reservation {
	var n encodedReservation
	if note == "" || json.Unmarshal([]byte(note), &n) != nil || n.Tokens <= 0 {
		return Reservation{}
	}
	return Reservation{n.Tokens, time.UnixMicro(n.At).UTC(), agentsvc.ContextID(n.Session)}
}
