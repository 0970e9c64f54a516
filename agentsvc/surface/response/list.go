package response

import (
	"bytes"
	"context"
	"iter"
	"net/http"

	"stoa/agentsvc/processor"
	"stoa/agentsvc/surface/encode"
)

// WriteList writes a JSON object whose first member, name, is the list of items, followed by the members of remaining,
// an object with at least one member, or nil. It keeps at most one piece of the response in memory, so that a long list
// takes no more memory than a short one. An error after the first piece was written leaves the response truncated.
//
// Pieces after the first are made with a permit of [processor.Shared] for app, so that many readers of long lists leave
// processors to other apps. The end of ctx ends the wait for one. remaining is read after the last item.
func WriteList[T any](ctx context.Context, app string, w http.ResponseWriter, name string, items iter.Seq[T], remaining any) error {
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
	permit := false
	release := func() {
		if permit {
			processor.Shared.Release()
			permit = false
		}
	}
	defer release()
	for item := range items {
		if started && !permit {
			if err := processor.Shared.Acquire(ctx, app); err != nil {
				return err
			}
			permit = true
		}
		if !first {
			b.WriteByte(',')
		}
		first = false
		if err := encode.AppendJSONLine(b, item); err != nil {
			return err
		}
		b.Truncate(b.Len() - 1) // the line break
		if b.Len() >= pieceSize/2 {
			release()
			flush()
		}
	}
	release()
	b.WriteByte(']')
	if remaining == nil {
		b.WriteString("}\n")
	} else {
		at := b.Len()
		if err := encode.AppendJSONLine(b, remaining); err != nil {
			return err
		}
		// The "{" of remaining becomes the comma between the members.
		b.Bytes()[at] = ','
	}
	if !started {
		return writeBody(w, jsonMediaType, http.StatusOK, b.Bytes())
	}
	flush()
	return nil
}
