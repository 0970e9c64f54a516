package invoice

import (
	"encoding/json"
	"time"
)

// Timestamp is a time that is encoded in JSON in UTC with milliseconds, the format of times in stored invoices.
type Timestamp struct{ time.Time }

// MarshalJSON implements [json.Marshaler].
func (t Timestamp) MarshalJSON() ([]byte, error) {
	return json.Marshal(t.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}
