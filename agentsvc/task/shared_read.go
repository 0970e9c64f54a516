package task

import (
	"context"
	"sync"
)

// sharedReads has those who ask for the same at the same time read it once. Nobody is told what was read before they asked: who
// comes while it is being read waits for that to end, and is told, with all others who wait, what is read next.
type sharedReads[K comparable, V any] struct {
	mu      sync.Mutex
	current map[K]*sharedRead[V] // that are under way
}

// sharedRead is one of them. When it is done it has found something, or there is an error.
type sharedRead[V any] struct {
	done   chan struct{}
	next   *sharedRead[V] // that waits for this one
	result V
	err    error
}

// readShared returns what read finds, or what it finds for somebody else after do was called. Nobody may change it.
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
		current.err = context.Canceled // as it stays where read panics
		defer s.endRead(key, current)
		current.result, current.err = read(ctx)
	case current.err != nil: // which may be about the one who read, such as that he has left
		return read(ctx)
	}
	return current.result, current.err
}

// joinRead returns the reading that the caller takes part in, which has not begun, the one that it waits for, nil = none, and
// whether the caller is the one who reads.
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

// endRead lets those go who wait for mine, and the next reading begin.
func (s *sharedReads[K, V]) endRead(key K, current *sharedRead[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startNextRead(key, current)
}

// abandonRead ends mine before it has begun: those who wait for it read for themselves.
func (s *sharedReads[K, V]) abandonRead(key K, before, current *sharedRead[V], why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	current.err = why
	if before.next == current && s.current[key] == before {
		before.next = nil
		close(current.done)
		return
	}
	s.startNextRead(key, current)
}

func (s *sharedReads[K, V]) startNextRead(key K, current *sharedRead[V]) {
	if current.next != nil {
		s.current[key] = current.next
	} else {
		delete(s.current, key)
	}
	close(current.done)
}
