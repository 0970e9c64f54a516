package task

import (
	"context"
	"sync"
)

// sharedReads merges equal reads that several callers request at the same time. A caller never gets a result whose
// read began before its call, unlike with singleflight: while a read is in progress, new callers wait for it to end
// and then share the next read. So a caller that has just written sees its write.
// docs/performance.md has the gain.
type sharedReads[K comparable, V any] struct {
	mu      sync.Mutex
	current map[K]*sharedRead[V] // by key, the read in progress
}

// sharedRead is one read. result and err are written before done is closed and read after it.
type sharedRead[V any] struct {
	done chan struct{}
	// next is the read that begins when this one is done, with all callers that came meanwhile; guarded by
	// sharedReads.mu.
	next   *sharedRead[V]
	result V
	err    error
}

// readShared returns what read returns, called by this caller or by another one after this call began. The result is
// shared: no caller may modify it.
func (s *sharedReads[K, V]) readShared(ctx context.Context, key K, read func(context.Context) (V, error)) (found V, err error) {
	before, current, isReader := s.joinRead(key)
	wait := current.done
	if isReader {
		if wait = nil; before != nil {
			wait = before.done
		}
	}
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			if isReader {
				s.abandonRead(key, before, current, ctx.Err())
			}
			return found, ctx.Err()
		}
	}
	switch {
	case isReader:
		current.err = context.Canceled // the value that remains if read panics
		defer s.endRead(key, current)
		current.result, current.err = read(ctx)
	// The error may concern only the caller that read, for example its cancelled context, so each other caller reads
	// for itself.
	case current.err != nil:
		return read(ctx)
	}
	return current.result, current.err
}

// joinRead adds the caller to a read that has not begun. It returns that read, the one in progress before it (nil =
// none), and whether this caller has to perform it.
func (s *sharedReads[K, V]) joinRead(key K) (before, current *sharedRead[V], isReader bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.current[key]
	if before != nil && before.next != nil {
		return before, before.next, false
	}
	current = &sharedRead[V]{done: make(chan struct{})}
	if before != nil {
		before.next = current
		return before, current, true
	}
	if s.current == nil {
		s.current = map[K]*sharedRead[V]{}
	}
	s.current[key] = current
	return nil, current, true
}

// endRead releases the callers that wait for current and lets the next read begin.
func (s *sharedReads[K, V]) endRead(key K, current *sharedRead[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startNextRead(key, current)
}

// abandonRead ends a read whose reader gave up before it began. The callers that joined it read for themselves.
func (s *sharedReads[K, V]) abandonRead(key K, before, current *sharedRead[V], why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	current.err = why
	// The read in progress has not ended: detach from it. Otherwise current is already the one in progress.
	if before.next == current && s.current[key] == before {
		before.next = nil
		close(current.done)
		return
	}
	s.startNextRead(key, current)
}

// startNextRead makes the next read, if any, the one in progress and closes current.done. The caller holds s.mu.
func (s *sharedReads[K, V]) startNextRead(key K, current *sharedRead[V]) {
	if current.next != nil {
		s.current[key] = current.next
	} else {
		delete(s.current, key)
	}
	close(current.done)
}
