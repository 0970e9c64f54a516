package indexing

import (
	"context"
	"time"

	"stoa/agentsvc/document/corpus"
)

// maxOverdue bounds the passes without a slot, as a multiple of the slots. Beyond it a pass keeps its slot.
const maxOverdue = 16

// slot is the right of a pass to one of Indexer.slots. Indexer.mu guards held and closed.
type slot struct {
	x *Indexer
	// held is set while the pass has the slot, closed once it may have none any more.
	held, closed bool
}

// free gives the slot to another pass, if this one has it.
func (s *slot) free() {
	s.x.mu.Lock()
	held := s.held
	s.held = false
	s.x.mu.Unlock()
	if held {
		<-s.x.slots
	}
}

// take takes a slot again, if the pass has none, and reports whether it has one: it has none when ctx ends.
func (s *slot) take(ctx context.Context) bool {
	s.x.mu.Lock()
	held := s.held
	s.x.mu.Unlock()
	if held {
		return true
	}
	select {
	case s.x.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	s.x.mu.Lock()
	s.held = !s.closed
	held = s.held
	s.x.mu.Unlock()
	if !held {
		<-s.x.slots
	}
	return held
}

// close frees the slot for good.
func (s *slot) close() {
	s.x.mu.Lock()
	s.closed = true
	s.x.mu.Unlock()
	s.free()
}

// freeAt frees the slot when the slice is over, even if the pass waits for its source: a source that answers slowly keeps
// no other app from its turn. What the pass has begun goes on. The returned function ends that.
func (s *slot) freeAt(deadline time.Time) (stop func() bool) {
	return time.AfterFunc(time.Until(deadline), func() {
		if s.x.countOverdue() < maxOverdue*s.x.options.Passes {
			s.free()
		}
	}).Stop
}

// countOverdue returns how many passes are at work without a slot.
func (x *Indexer) countOverdue() (n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range x.active {
		if !r.slot.held && !r.isWaiting {
			n++
		}
	}
	return n
}

// passResult is how a pass ends.
type passResult struct {
	outcome PassOutcome
	end     corpus.Release
	name    string
}

// workOrAbandon carries out the pass. If the work does not return within Bounds.Abandon after the context of the pass has
// ended, it is abandoned: the pass is given back, and the process does not wait for it. Its app gets no other pass here
// until the work has ended.
func (r *passRun) workOrAbandon(ctx context.Context) passResult {
	done := make(chan passResult, 1)
	go func() {
		defer close(r.ended)
		defer r.x.remove(r)
		p := passResult{outcome: PassEnded}
		if r.awaitPredecessor(ctx) {
			p.outcome, p.end, p.name = r.work(ctx)
		}
		p.end.Cursor = r.cursor.String()
		done <- p
	}()
	select {
	case p := <-done:
		return p
	case <-r.ctx.Done():
	}
	limit := time.NewTimer(r.x.options.Bounds.Abandon)
	defer limit.Stop()
	select {
	case p := <-done:
		return p
	case <-limit.C:
	}
	r.log().Error("the indexing of documents does not end: its place is given to others", "after", r.x.options.Bounds.Abandon)
	return passResult{PassEnded, corpus.Release{Cursor: r.pass.Cursor}, ""}
}

// awaitPredecessor waits for the end of the pass before over the same store, without a slot: a source has one listing at a
// time. It reports whether the pass begins: it does not when ctx ends.
func (r *passRun) awaitPredecessor(ctx context.Context) bool {
	if r.before == nil {
		return true
	}
	r.slot.free()
	select {
	case <-r.before.ended:
		return r.slot.take(ctx)
	case <-ctx.Done():
		return false
	}
}
