package indexing

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/document/source"
	"stoa/agentsvc/trail"
)

const (
	// defaultConcurrent bounds the documents at work in a pass of a store without indexing.max_concurrent, maxConcurrent
	// in any.
	defaultConcurrent = 4
	maxConcurrent     = 32
	// pendingBatch is how many waiting documents are read at once.
	pendingBatch = 100
	// maxProbes is how many documents are tried while the embedder or the vector store has not answered for any, and how
	// many failures in a row hold a pass.
	maxProbes = 3
	// provenHolds is how many passes in a row must have been held before the last document of a store is to blame.
	provenHolds = 5
	// memoryFactor is the estimated memory of a document at work for each byte of it: its text, chunks and vectors.
	memoryFactor = 8
	// unknownBytes is assumed as the size of a document that its source does not name.
	unknownBytes = 1 << 20
)

// suspect is a document for which the embedder or the vector store did not answer before it answered for any.
type suspect struct {
	document corpus.PendingDocument
	failure  failure
}

// documentWorker is the part of a pass that indexes documents.
type documentWorker struct{ *passRun }

// startSpan starts a span below that of the pass.
func startSpan(ctx context.Context, name string, a ...attribute.KeyValue) (context.Context, trace.Span) {
	return trail.StartSpan(ctx, name, trace.WithAttributes(a...))
}

func endSpan(s trace.Span, err error) { trail.EndSpan(s, err) }

// workDocuments indexes the documents that wait, until none is left or the slice is over. Several are at work at a time,
// but only one at a time before the embedder and the vector store have answered: what is down is asked three times a pass.
func (r documentWorker) workDocuments(ctx context.Context) error {
	after := ""
	for {
		batch, err := r.app.Rows.Index.NextPending(ctx, r.pass.Store, after, pendingBatch)
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			break
		}
		after = batch[len(batch)-1].ID
		if r.pass.Attempts > 0 { // so that the same documents are not tried first each time
			rand.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
		}
		if err := r.workBatch(ctx, batch); err != nil {
			return err
		}
		if r.isHeld() {
			break
		}
	}
	return r.settleSuspects(ctx)
}

// settleSuspects returns why the pass is held. A document that was to blame once already, because others were indexed at
// the time, is to blame again if it is the last one, so that nothing is left that could prove it, and several passes were
// held in a row: otherwise the last document of a store would be tried for ever.
func (r documentWorker) settleSuspects(ctx context.Context) error {
	if err := r.heldError(); err == nil || r.isHeld() || r.pass.Attempts < provenHolds {
		return err
	}
	for _, s := range r.suspects {
		if s.document.Attempts == 0 {
			return s.failure.err
		}
	}
	for _, s := range r.suspects {
		if err := r.failDocument(ctx, s.document, s.failure); err != nil {
			return err
		}
	}
	return nil
}

// heldError returns the reason why the pass is held, nil if it is not.
func (r documentWorker) heldError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.heldBy != nil {
		return r.heldBy.err
	}
	if len(r.suspects) > 0 { // and no other document that could prove them guilty
		return r.suspects[0].failure.err
	}
	return nil
}

// workBatch indexes documents. It returns errYield when the slice is over and not all were begun.
func (r documentWorker) workBatch(ctx context.Context, batch []corpus.PendingDocument) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(min(r.concurrency(), maxConcurrent))
	begun := 0
	for _, d := range batch {
		if gctx.Err() != nil || r.isOver() || r.isHeld() {
			break
		}
		begun++
		if !r.answered.Load() {
			if err := r.handleDocument(ctx, d); err != nil {
				return errors.Join(err, g.Wait())
			}
			continue
		}
		g.Go(func() error { return r.handleDocument(gctx, d) })
	}
	err := g.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case begun < len(batch) && !r.isHeld():
		return errYield
	}
	return nil
}

// concurrency returns how many documents are at work at a time.
func (r documentWorker) concurrency() int {
	if r.store.MaxConcurrent > 0 {
		return r.store.MaxConcurrent
	}
	return defaultConcurrent
}

// isHeld reports whether no further document is begun.
func (r documentWorker) isHeld() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heldBy != nil
}

// handleDocument indexes a document within the bounds of the process and records what became of it. An error ends the
// pass.
func (r documentWorker) handleDocument(ctx context.Context, d corpus.PendingDocument) error {
	weight := d.Bytes
	if weight == 0 {
		weight = unknownBytes
	}
	weight = min(max(weight*memoryFactor, 1<<20), r.x.options.MemoryBytes)
	p, err := r.x.takePlace(ctx, string(r.pass.Tenant), weight)
	if err != nil {
		return context.Cause(ctx)
	}
	defer p.release()
	spanCtx, span := startSpan(ctx, "index document", attribute.Int64("stoa.bytes", d.Bytes))
	n := 0
	err = containFault(spanCtx, r.log(), func() (err error) {
		n, err = r.indexDocument(spanCtx, d, p)
		return err
	})
	endSpan(span, err)
	switch {
	case err == nil:
		r.x.options.Hooks.OnDocument(r.app.Name, OutcomeIndexed, n)
		return r.noteAnswer(ctx)
	case errors.Is(err, errNotListed), errors.Is(err, corpus.ErrDocumentChanged):
		return nil // it is deleted, or waits with another content
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return r.handleFailure(ctx, d, newFailure(err))
}

// place is what a document at work has of the bounds of the process.
type place struct {
	x      *Indexer
	app    string
	memory int64 // bytes
}

// takePlace waits until a document of app may be at work with this much memory. Apps get their turn one after the other,
// however many documents each has. The place must be released after the work.
func (x *Indexer) takePlace(ctx context.Context, app string, memory int64) (*place, error) {
	if err := x.documents.Acquire(ctx, app); err != nil {
		return nil, err
	}
	p := &place{x: x, app: app}
	if err := p.acquireMemory(ctx, memory); err != nil {
		x.documents.Release()
		return nil, err
	}
	return p, nil
}

// acquireMemory waits for the memory in the app's turn.
func (p *place) acquireMemory(ctx context.Context, memory int64) error {
	if err := p.x.memoryTurn.Acquire(ctx, p.app); err != nil {
		return err
	}
	defer p.x.memoryTurn.Release()
	if err := p.x.memory.Acquire(ctx, memory); err != nil {
		return err
	}
	p.memory = memory
	return nil
}

// resize waits until the document may have more memory than it has, if it needs more. What it has is given back before, so
// that two documents do not wait for each other.
func (p *place) resize(ctx context.Context, memory int64) error {
	if memory = min(memory, p.x.options.MemoryBytes); memory <= p.memory {
		return nil
	}
	p.x.memory.Release(p.memory)
	p.memory = 0
	return p.acquireMemory(ctx, memory)
}

func (p *place) release() {
	p.x.memory.Release(p.memory)
	p.x.documents.Release()
}

// contentBytes returns the length of a document's text.
func contentBytes(c document.Content) (n int64) {
	for _, s := range c.Sections {
		n += int64(len(s.Text))
	}
	return n
}

// noteAnswer records that the embedder and the vector store have answered: the documents for which they had not before are
// to blame themselves.
func (r documentWorker) noteAnswer(ctx context.Context) error {
	r.answered.Store(true)
	r.mu.Lock()
	blamed := r.suspects
	r.suspects, r.streak = nil, 0
	r.mu.Unlock()
	for _, s := range blamed {
		if err := r.failDocument(ctx, s.document, s.failure); err != nil {
			return err
		}
	}
	return nil
}

// handleFailure records the failure of a document, or holds the pass.
func (r documentWorker) handleFailure(ctx context.Context, d corpus.PendingDocument, f failure) error {
	switch f.consequence {
	case endsPass:
		return f.err
	case holdsPass:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.heldBy = &f
		return nil
	case doubtful:
		r.mu.Lock()
		r.streak++
		answered := r.answered.Load()
		if !answered {
			r.suspects = append(r.suspects, suspect{d, f})
		}
		if r.streak >= maxProbes {
			r.heldBy = &f
		}
		held := r.heldBy != nil
		r.mu.Unlock()
		if !answered || held {
			return nil
		}
	}
	return r.failDocument(ctx, d, f)
}

// failDocument postpones a document, or fails it for good after its retries.
func (r documentWorker) failDocument(ctx context.Context, d corpus.PendingDocument, f failure) error {
	retry, outcome := time.Duration(0), OutcomeFailed
	if f.consequence != failsDocument && int(d.Attempts) < r.retry().MaxRetries {
		retry, outcome = max(r.retry().delay(int(d.Attempts)+1, f.retryAfter), time.Millisecond), OutcomePostponed
	}
	r.log().InfoContext(ctx, "a document could not be indexed", "document", d.ID, "reason", f.reason, "attempt", d.Attempts+1, "again", retry > 0, "error", f.err)
	err := r.app.Rows.Index.FailDocument(ctx, r.pass, d, f.reason, retry)
	if errors.Is(err, corpus.ErrDocumentChanged) {
		return nil
	}
	if err != nil {
		return err
	}
	r.x.options.Hooks.OnDocument(r.app.Name, outcome, 0)
	if retry > 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		if at := time.Now().Add(retry); r.retryAt.IsZero() || at.Before(r.retryAt) {
			r.retryAt = at
		}
	}
	return nil
}

// errNotListed reports that the source no longer lists a document that waits.
var errNotListed = errors.New("the source does not list the document")

// runStep carries out a step, with its span and duration.
func (r *passRun) runStep(ctx context.Context, s step, f func(ctx context.Context) error) error {
	began := time.Now()
	ctx, span := startSpan(ctx, string(s)+" document")
	err := f(ctx)
	endSpan(span, err)
	r.x.options.Hooks.OnStep(string(s), time.Since(began))
	if err == nil || errors.Is(err, errNotListed) || errors.Is(err, corpus.ErrDocumentChanged) {
		return err
	}
	return &stepError{s, err}
}

// indexDocument reads, divides, embeds and commits a document. It returns the number of its chunks.
func (r documentWorker) indexDocument(ctx context.Context, d corpus.PendingDocument, p *place) (int, error) {
	var content document.Content
	var chunks []document.Chunk
	c := corpus.Commit{Document: d.ID, Revision: d.Revision, Generation: r.generation, Collection: r.collectionNote}
	if err := r.readDocument(ctx, d, &c, &content); err != nil {
		return 0, err
	}
	// The text of a compressed file is longer than the file.
	if err := p.resize(ctx, contentBytes(content)*memoryFactor); err != nil {
		return 0, context.Cause(ctx)
	}
	err := r.runStep(ctx, stepChunk, func(ctx context.Context) (err error) {
		chunks, err = r.store.Cut(ctx, content)
		return err
	})
	if err != nil {
		return 0, err
	}
	c.Title, c.MediaType = content.Title, content.MediaType
	title := d.Title
	if title == "" {
		title = content.Title
	}
	c.Chunks = make([]corpus.EmbeddedChunk, len(chunks))
	for i, chunk := range chunks {
		c.Chunks[i] = corpus.EmbeddedChunk{Chunk: chunk}
	}
	if r.store.Embedder != nil && len(chunks) > 0 {
		memory := r.app.VectorMemory.NewPart(vectorCopies)
		defer memory.ReleaseBytes()
		if err := r.embedChunks(ctx, memory, title, &c); err != nil {
			return 0, err
		}
	}
	return len(chunks), r.runStep(ctx, stepCommit, func(ctx context.Context) error {
		return r.app.Rows.Index.CommitDocument(ctx, r.pass, c)
	})
}

// readDocument reads the text of a document into content, and the hash of what has no body in the database into c.
func (r documentWorker) readDocument(ctx context.Context, d corpus.PendingDocument, c *corpus.Commit, content *document.Content) error {
	var body []byte
	err := r.runStep(ctx, stepRead, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeoutCause(ctx, r.x.options.Bounds.Read, errReadLimit)
		defer cancel()
		if body, err = r.readBody(ctx, d); err != nil && errors.Is(context.Cause(ctx), errReadLimit) {
			return source.Errorf("the source did not send the document within %s", r.x.options.Bounds.Read)
		}
		return err
	})
	if err != nil {
		return err
	}
	if r.store.Source != nil {
		sum := sha256.Sum256(body)
		c.ContentHash = hex.EncodeToString(sum[:])
	}
	return r.runStep(ctx, stepExtract, func(ctx context.Context) (err error) {
		*content, err = r.store.Read(ctx, d.ID, d.MediaType, bytes.NewReader(body))
		return err
	})
}

// errReadLimit is the cause of the end of a reading that took too long.
var errReadLimit = errors.New("the document was not read in time")

// maxBodyBytes bounds what is read of a document, one byte more than any store accepts, so that the reader of files can
// name its own bound.
const maxBodyBytes = 20<<20 + 1

// readBody reads the content of a document: of an upload from the database, of another from its source.
func (r documentWorker) readBody(ctx context.Context, d corpus.PendingDocument) ([]byte, error) {
	if r.store.Source == nil {
		return r.app.Rows.Index.ReadBody(ctx, r.pass.Store, d.ID, d.Revision)
	}
	var item source.Item
	if r.listing != nil {
		item = r.listing.items[d.ID]
	}
	if item.Open == nil {
		return nil, errNotListed
	}
	body, err := item.Open(ctx)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(body, maxBodyBytes))
	return content, errors.Join(err, body.Close())
}
