package source

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
)

// maxHeldBytes bounds the content that the items of one listing hold in memory.
const maxHeldBytes = 8 << 20

// Held is the content that the items of one listing hold until they are opened. A source that has read the content to
// list a document need not read it again, but a pass may keep all items of a listing before it opens the first. The zero
// value is ready.
type Held struct {
	bytes atomic.Int64
}

// NewOpen returns the Open of an item whose content is text. It holds text within the budget; beyond it, Open reads
// the content again.
func (h *Held) NewOpen(text string, read func(ctx context.Context) (string, error)) func(context.Context) (io.ReadCloser, error) {
	size := int64(len(text))
	if h.bytes.Add(size) > maxHeldBytes {
		h.bytes.Add(-size)
		return NewOpen(read)
	}
	return NewOpen(func(context.Context) (string, error) {
		h.bytes.Add(-size)
		return text, nil
	})
}

// NewOpen returns the Open of an item whose content read returns.
func NewOpen(read func(ctx context.Context) (string, error)) func(context.Context) (io.ReadCloser, error) {
	return func(ctx context.Context) (io.ReadCloser, error) {
		text, err := read(ctx)
		if err != nil {
			return nil, err
		}
		return io.NopCloser(strings.NewReader(text)), nil
	}
}
