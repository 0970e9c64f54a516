package response

import (
	"bytes"
	"iter"
	"net/http"

	"stoa/agentsvc/surface/encode"
)

// WriteList writes a JSON object whose first member, name, is the list of items, followed by the members of remaining,
// an object with at least one member. It keeps at most one piece of the response in memory, so that a long list takes
// no more memory than a short one. An error after the first piece was written leaves the response truncated.
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
		WritePieces(w, b.Bytes())
		b.Reset()
	}
	for item := range items {
		if !first {
			b.WriteByte(',')
		}
		first = false
		if err := encode.AppendJSONLine(b, item); err != nil {
			return err
		}
		b.Truncate(b.Len() - 1) // the line break
		if b.Len() >= pieceSize/2 {
			flush()
		}
	}
	b.WriteByte(']')
	at := b.Len()
	if err := encode.AppendJSONLine(b, remaining); err != nil {
		return err
	}
	// The "{" of remaining becomes the comma between the members.
	b.Bytes()[at] = ','
	if !started {
		return writeBody(w, jsonMediaType, http.StatusOK, b.Bytes())
	}
	flush()
	return nil
}
