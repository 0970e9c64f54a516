package ratelimit

import (
	"encoding/json"
	"time"

	"stoa/agentsvc"
)

// Reservation is what a call holds of its limits of tokens until it is known what it used. The zero value is nothing.
type Reservation struct {
	Tokens  int64              // of each rule, but no more than its limit
	At      time.Time          // by the clock of the place that counts
	Session agentsvc.ContextID // under which it was counted
}

type encodedReservation struct {
	Tokens  int64  `json:"tokens"`
	At      int64  `json:"at"` // microseconds since 1970
	Session string `json:"session,omitempty"`
}

// EncodeText returns r as a text that [ParseReservation] reads, "" for nothing.
func (r Reservation) EncodeText() string {
	if r.Tokens == 0 {
		return ""
	}
	raw, _ := json.Marshal(encodedReservation{r.Tokens, r.At.UnixMicro(), string(r.Session)})
	return string(raw)
}

// ParseReservation reads what [Reservation.EncodeText] wrote. What it cannot read is nothing: it lapses with its window.
func ParseReservation(note string) Reservation {
	var n encodedReservation
	if note == "" || json.Unmarshal([]byte(note), &n) != nil || n.Tokens <= 0 {
		return Reservation{}
	}
	return Reservation{n.Tokens, time.UnixMicro(n.At).UTC(), agentsvc.ContextID(n.Session)}
}
