package billing

import (
	"encoding/json"
	"time"
)

// Timestamp is a time that JSON has in UTC and to the millisecond, as all answers do.
type Timestamp struct{ time.Time }

// MarshalJSON implements [json.Marshaler].
func (s Timestamp) MarshalJSON() ([]byte, error) {
	return json.Marshal(s.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}
