// Package embedder is the interface to models that turn text into vectors: texts with similar meaning have vectors with
// similar directions. The folders below hold one vendor each.
//
// A vendor's package defines the request and the response of its API and passes an [EmbedFunc] to [New], which adds
// what all vendors share: batches, the timeout of a request, and the checks that the answer can be used (one vector for
// each text, one length, a direction). embeddertest holds a server that emulates the vendors and the suite of all of
// them.
//
// Vectors of different models cannot be compared: [Embedder.Model] is therefore stored with each vector.
package embedder

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/vectorstore"
)

// Purpose is what a vector is used for. Some models embed a question differently from a text that answers it.
type Purpose string

// The purposes. Document is for texts that are stored and found, Query for texts that are searched for.
const (
	Document Purpose = "document" // a text to be found
	Query    Purpose = "query"    // a text to search with
)

// Embedder makes vectors. Implementations are safe for concurrent use.
type Embedder interface {
	// Embed returns one vector for each text, in order, all of the same length. It is counted as usage of payer. The
	// error is an [*Error] if the vendor failed.
	Embed(ctx context.Context, payer agentsvc.Payer, p Purpose, texts []string) ([][]float32, error)
	// Model identifies the model, its vendor and a configured dimension. Only vectors with the same Model can be
	// compared.
	Model() string
}

// Options are what all vendors' embedders have in common. HTTP is required.
type Options struct {
	// Model is the vendor's name of the model, "" = its usual one.
	Model  string
	APIKey string
	// BaseURL is the server, "" = the vendor's own.
	BaseURL string
	// Dimension is the length of the vectors, 0 = that of the first vector that arrives.
	Dimension int
	// Timeout bounds one request, 0 = 30 s.
	Timeout time.Duration
	// BatchSize is the largest number of texts in one request, 0 = 100.
	BatchSize int
	// HTTP is the client for requests; it must enforce the egress rules, see package egress.
	HTTP *http.Client
	// Memory names the pool and the app that the memory of answers is reserved from; nil = no bound in addition to that of
	// each answer.
	Memory *capacity.MemoryReservation
}

// EmbedFunc sends one request to a vendor. New checks its result.
type EmbedFunc func(ctx context.Context, p Purpose, texts []string) ([][]float32, error)

// batchEmbedder implements [Embedder] for all vendors. Read-only except for dimension.
type batchEmbedder struct {
	options Options
	vendor  string
	embed   EmbedFunc
	// dimension is the length of all vectors: the configured one, or that of the first vector, set once; 0 until then.
	// A model that changes its dimension behind the same name thus fails instead of mixing vectors.
	dimension atomic.Int64
}

// New returns an embedder of the named vendor that sends its requests with embed.
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

// Model implements [Embedder].
func (b *batchEmbedder) Model() string {
	if b.options.Dimension > 0 {
		return fmt.Sprintf("%s/%s/%d", b.vendor, b.options.Model, b.options.Dimension)
	}
	return b.vendor + "/" + b.options.Model
}

// Embed implements [Embedder]. The batches are sent one after the other; the first error ends it.
func (b *batchEmbedder) Embed(ctx context.Context, _ agentsvc.Payer, p Purpose, texts []string) ([][]float32, error) {
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

// embedBatch sends one batch and checks the answer.
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
	// The first answer decides only if all of it can be used.
	for _, v := range vectors {
		if len(v) > vectorstore.MaxDimension {
			return nil, &Error{Vendor: b.vendor, Message: fmt.Sprintf("answered with a vector of %d numbers, more than the %d that are allowed: choose another model, or set dimension if it has several lengths", len(v), vectorstore.MaxDimension)}
		}
		if len(v) != len(vectors[0]) {
			return nil, &Error{Vendor: b.vendor, Message: fmt.Sprintf("answered with vectors of %d and %d numbers", len(vectors[0]), len(v))}
		}
		if !hasDirection(v) && len(v) > 0 {
			return nil, &Error{Vendor: b.vendor, Message: "answered with a vector that has no direction"}
		}
	}
	for _, v := range vectors {
		if len(v) > 0 {
			b.dimension.CompareAndSwap(0, int64(len(v)))
		}
		if want := b.dimension.Load(); int64(len(v)) != want || want == 0 {
			return nil, &Error{Vendor: b.vendor, Message: fmt.Sprintf("answered with a vector of %d numbers, not %d", len(v), want)}
		}
	}
	return vectors, nil
}

// hasDirection reports whether v has a direction: finite numbers, not all of them 0. The similarity of a vector without
// one is not defined.
func hasDirection(v []float32) bool {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return sum > 0 && !math.IsInf(sum, 0) && !math.IsNaN(sum)
}
