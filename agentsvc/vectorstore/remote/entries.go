package remote

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Entries are the entries of a list in an answer, of which there may be as many as were asked for: decoding stops with an
// error at the first one more. The zero value accepts [MaxMatches] of them.
type Entries[T any] struct {
	max int
	// List has the entries, nil if the answer has no list.
	List []T
}

// NewEntries returns an empty list for at most limit entries.
func NewEntries[T any](limit int) Entries[T] { return Entries[T]{max: limit} }

// errTooManyEntries reports that a list has more entries than were asked for.
var errTooManyEntries = errors.New("the list has more entries than were asked for")

// UnmarshalJSON implements [json.Unmarshaler].
func (e *Entries[T]) UnmarshalJSON(text []byte) error {
	if e.max == 0 {
		e.max = MaxMatches
	}
	if e.List = nil; bytes.Equal(text, []byte("null")) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return errors.New("the value is no list")
	}
	e.List = []T{}
	for d.More() {
		if len(e.List) == e.max {
			return errTooManyEntries
		}
		var entry T
		if err := d.Decode(&entry); err != nil {
			return err
		}
		e.List = append(e.List, entry)
	}
	return nil
}
