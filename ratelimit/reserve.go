package ratelimit

import (
	"encoding/json"
	"time"

	"stoa/agentsvc"
)

// Reserve is what a call holds of its limits of tokens until it is known what it used. The zero value is nothing.
type Reserve struct {
	Tokens  int64              // of each rule, but no more than its limit
	At      time.Time          // by the clock of the place that counts
	Session agentsvc.ContextID // under which it was counted
}

type reserveNote struct {
	Tokens  int64  `json:"tokens"`
	At      int64  `json:"at"` // microseconds since 1970
	Session string `json:"session,omitempty"`
}

// Note returns r as a text that [ReserveOf] reads, "" for nothing.
func (r Reserve) Note() string {
	if r.Tokens == 0 {
		return ""
	}
	raw, _ := json.Marshal(reserveNote{r.Tokens, r.At.UnixMicro(), string(r.Session)})
	return string(raw)
}

// ReserveOf reads what [Reserve.Note] wrote. What it cannot read is nothing: it lapses with its window.
func ReserveOf(note string) Reserve {
	var n reserveNote
	if note == "" || json.Unmarshal([]byte(note), &n) != nil || n.Tokens <= 0 {
		return Reserve{}
	}
	return Reserve{n.Tokens, time.UnixMicro(n.At).UTC(), agentsvc.ContextID(n.Session)}
}
