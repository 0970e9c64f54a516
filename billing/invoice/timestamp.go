package invoice

import (
	"encoding/json"
	"time"
)

// Timestamp is a time that is encoded in JSON in UTC with milliseconds, the format of all times in responses.
type Timestamp struct{ time.Time }

// MarshalJSON implements [json.Marshaler].
func (s Timestamp) MarshalJSON() ([]byte, error) {
	return json.Marshal(s.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}
