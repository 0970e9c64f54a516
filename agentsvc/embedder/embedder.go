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

// EmbedFunc sends one request to a vendor.
type EmbedFunc func(ctx context.Context, p Purpose, texts []string) ([][]float32, error)

// batchEmbedder is an embedder that asks in batches.
type batchEmbedder struct {
	options   Options
	vendor    string
	embed     EmbedFunc
	dimension atomic.Int64 // of all vectors, once known
}

// New returns an embedder of a vendor that is asked by ask.
func New(vendor string, o Options, embed EmbedFunc) Embedder {
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.BatchSize == 0 {
		o.BatchSize = 100
	}
	b := &batchEmbedder{options: o, vendor: vendor, embed: embed}
	b.dimension.Store(int64(o.Dimension))
	return b
}

func (b *batchEmbedder) Model() string {
	if b.options.Dimension > 0 {
		return fmt.Sprintf("%s/%s/%d", b.vendor, b.options.Model, b.options.Dimension)
	}
	return b.vendor + "/" + b.options.Model
}

func (b *batchEmbedder) Embed(ctx context.Context, p Purpose, texts []string) ([][]float32, error) {
	vectors := make([][]float32, 0, len(texts))
	for len(texts) > 0 {
		n := min(b.options.BatchSize, len(texts))
		batch, err := b.embedBatch(ctx, p, texts[:n])
		if err != nil {
			return nil, err
		}
		vectors = append(vectors, batch...)
		texts = texts[n:]
	}
	return vectors, nil
}

// embedBatch asks for one batch and checks the answer.
func (b *batchEmbedder) embedBatch(ctx context.Context, p Purpose, texts []string) ([][]float32, error) {
	ctx, cancel := context.WithTimeout(ctx, b.options.Timeout)
	defer cancel()
	vectors, err := b.embed(ctx, p, texts)
	if err != nil {
		return nil, err
	}
	if len(vectors) != len(texts) {
		return nil, &Error{Vendor: b.vendor, Message: fmt.Sprintf("answered with %d vectors for %d texts", len(vectors), len(texts))}
	}
	for _, v := range vectors {
		if len(v) > 0 {
			b.dimension.CompareAndSwap(0, int64(len(v)))
		}
		if want := b.dimension.Load(); int64(len(v)) != want || want == 0 {
			return nil, &Error{Vendor: b.vendor, Message: fmt.Sprintf("answered with a vector of %d numbers, not %d", len(v), want)}
		}
		if !hasDirection(v) {
			return nil, &Error{Vendor: b.vendor, Message: "answered with a vector that has no direction"}
		}
	}
	return vectors, nil
}

// hasDirection reports whether v has a direction: numbers only, and not all of them 0.
func hasDirection(v []float32) bool {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return sum > 0 && !math.IsInf(sum, 0) && !math.IsNaN(sum)
}
