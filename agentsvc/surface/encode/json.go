// Package encode has what protocols share when they encode responses: JSON without escapes for HTML, times, and tasks,
// messages and artifacts in snake_case.
package encode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// JSON returns v encoded as in responses: without escapes for HTML.
func JSON(v any) ([]byte, error) {
	var b bytes.Buffer
	err := AppendJSONLine(&b, v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// List returns a JSON object whose first member, name, is the list of items, which are JSON already, followed by
// the members of remaining, an object with at least one member. It copies each item once.
func List(name string, items [][]byte, remaining any) ([]byte, error) {
	size := len(name) + 512
	for _, item := range items {
		size += len(item) + 1
	}
	b := bytes.NewBuffer(make([]byte, 0, size))
	b.WriteString(`{"` + name + `":[`)
	for i, item := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(item)
	}
	b.WriteByte(']')
	at := b.Len()
	err := AppendJSONLine(b, remaining)
	if err == nil {
		// The "{" of remaining becomes the comma between the members.
		b.Bytes()[at] = ','
	}
	return b.Bytes(), err
}

// ErrEncoding is wrapped by the errors of values that have no JSON.
var ErrEncoding = errors.New("encode an answer")

// AppendJSONLine appends v to b as one line of JSON, without escapes for HTML. On error, an [ErrEncoding], b is unchanged.
func AppendJSONLine(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrEncoding, err)
	}
	return nil
}
