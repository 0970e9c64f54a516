package surface

import (
	"bytes"
	"iter"
	"net/http"
)

// WriteList answers with an object whose first member, of that name, is the list of items, and which goes on with the members of
// rest, of which there is at least one. It holds one piece of the answer at a time, so that a long list takes no more memory than a
// short one, however many ask for it.
func WriteList[T any](w http.ResponseWriter, name string, items iter.Seq[T], remaining any) error {
	b := bytes.NewBuffer(make([]byte, 0, 2<<10))
	b.WriteString(`{"` + name + `":[`)
	started, first := false, true
	flush := func() {
		if !started {
			w.Header()["Content-Type"] = jsonMediaType
			w.WriteHeader(http.StatusOK)
			started = true
		}
		writePieces(w, b.Bytes())
		b.Reset()
	}
	for item := range items {
		if !first {
			b.WriteByte(',')
		}
		first = false
		if err := writeJSONLine(b, item); err != nil {
			return err
		}
		b.Truncate(b.Len() - 1) // the line's end
		if b.Len() >= pieceSize/2 {
			flush()
		}
	}
	b.WriteByte(']')
	at := b.Len()
	if err := writeJSONLine(b, remaining); err != nil {
		return err
	}
	b.Bytes()[at] = ','
	if !started {
		return writeResponse(w, jsonMediaType, http.StatusOK, b.Bytes())
	}
	flush()
	return nil
}
