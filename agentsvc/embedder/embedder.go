// Package embedder is the seam to models that turn text into vectors: texts of a like meaning have vectors that point
// in a like direction. The folders below hold one vendor each; they say how their vendor is asked, [New] does for all
// of them what none does differently: batches, the time of a request, and that what comes back can be used.
package embedder

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"
)

// Purpose says what a vector is for. Some models make another one of a question than of a text that answers it.
type Purpose string

// The purposes.
const (
	Document Purpose = "document" // to be found
	Query    Purpose = "query"    // to find with
)

// Embedder makes vectors. It is safe for concurrent use.
type Embedder interface {
	// Embed returns a vector for each text, in their order, all of one length. Its error is an [*Error] where the
	// vendor is to blame.
	Embed(ctx context.Context, p Purpose, texts []string) ([][]float32, error)
	// Model tells which vectors may be compared: those of the same model.
	Model() string
}

// Options are what all vendors' embedders have in common. HTTP is required; what is zero takes the value named beside
// it.
type Options struct {
	Model     string // the vendor's usual one
	APIKey    string
	BaseURL   string        // the vendor's own
	Dimension int           // length of the vectors; that of the first one
	Timeout   time.Duration // of one request; 30 s
	BatchSize int           // texts in one request; 100
	HTTP      *http.Client  // the way out; see package egress
}

// Ask sends one request to a vendor.
type Ask func(ctx context.Context, p Purpose, texts []string) ([][]float32, error)

// batched is an embedder that asks in batches.
type batched struct {
	o      Options
	vendor string
	ask    Ask
	length atomic.Int64 // of all vectors, once known
}

// New returns an embedder of a vendor that is asked by ask.
func New(vendor string, o Options, ask Ask) Embedder {
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.BatchSize == 0 {
		o.BatchSize = 100
	}
	b := &batched{o: o, vendor: vendor, ask: ask}
	b.length.Store(int64(o.Dimension))
	return b
}

func (b *batched) Model() string {
	if b.o.Dimension > 0 {
		return fmt.Sprintf("%s/%s/%d", b.vendor, b.o.Model, b.o.Dimension)
	}
	return b.vendor + "/" + b.o.Model
}

func (b *batched) Embed(ctx context.Context, p Purpose, texts []string) ([][]float32, error) {
	vectors := make([][]float32, 0, len(texts))
	for len(texts) > 0 {
		n := min(b.o.BatchSize, len(texts))
		batch, err := b.one(ctx, p, texts[:n])
		if err != nil {
			return nil, err
		}
		vectors = append(vectors, batch...)
		texts = texts[n:]
	}
	return vectors, nil
}

// one asks for one batch and checks the answer.
func (b *batched) one(ctx context.Context, p Purpose, texts []string) ([][]float32, error) {
	ctx, cancel := context.WithTimeout(ctx, b.o.Timeout)
	defer cancel()
	vectors, err := b.ask(ctx, p, texts)
	if err != nil {
		return nil, err
	}
	if len(vectors) != len(texts) {
		return nil, &Error{Vendor: b.vendor, Message: fmt.Sprintf("answered with %d vectors for %d texts", len(vectors), len(texts))}
	}
	for _, v := range vectors {
		if len(v) > 0 {
			b.length.CompareAndSwap(0, int64(len(v)))
		}
		if want := b.length.Load(); int64(len(v)) != want || want == 0 {
			return nil, &Error{Vendor: b.vendor, Message: fmt.Sprintf("answered with a vector of %d numbers, not %d", len(v), want)}
		}
		if !usable(v) {
			return nil, &Error{Vendor: b.vendor, Message: "answered with a vector that has no direction"}
		}
	}
	return vectors, nil
}

// usable reports whether v has a direction: numbers only, and not all of them 0.
func usable(v []float32) bool {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return sum > 0 && !math.IsInf(sum, 0) && !math.IsNaN(sum)
}
