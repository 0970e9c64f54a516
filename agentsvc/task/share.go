package task

import (
	"context"
	"sync"
)

// sharing has those who ask for the same at the same time read it once. Nobody is told what was read before they asked: who
// comes while it is being read waits for that to end, and is told, with all others who wait, what is read next.
type sharing[K comparable, V any] struct {
	mu   sync.Mutex
	last map[K]*reading[V] // that are under way
}

// reading is one of them. When it is done it has found something, or there is an error.
type reading[V any] struct {
	done  chan struct{}
	next  *reading[V] // that waits for this one
	found V
	err   error
}

// do returns what read finds, or what it finds for somebody else after do was called. Nobody may change it.
func (s *sharing[K, V]) do(ctx context.Context, key K, read func(context.Context) (V, error)) (found V, err error) {
	before, mine, leads := s.join(key)
	wait := mine.done
	if leads {
		if wait = nil; before != nil {
			wait = before.done
		}
	}
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			if leads {
				s.leave(key, before, mine, ctx.Err())
			}
			return found, ctx.Err()
		}
	}
	switch {
	case leads:
		mine.err = context.Canceled // as it stays where read panics
		defer s.end(key, mine)
		mine.found, mine.err = read(ctx)
	case mine.err != nil: // which may be about the one who read, such as that he has left
		return read(ctx)
	}
	return mine.found, mine.err
}

// join returns the reading that the caller takes part in, which has not begun, the one that it waits for, nil = none, and
// whether the caller is the one who reads.
func (s *sharing[K, V]) join(key K) (before, mine *reading[V], leads bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.last[key]
	if before != nil && before.next != nil {
		return before, before.next, false
	}
	mine = &reading[V]{done: make(chan struct{})}
	if before != nil {
		before.next = mine
		return before, mine, true
	}
	if s.last == nil {
		s.last = map[K]*reading[V]{}
	}
	s.last[key] = mine
	return nil, mine, true
}

// end lets those go who wait for mine, and the next reading begin.
func (s *sharing[K, V]) end(key K, mine *reading[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.past(key, mine)
}

// leave ends mine before it has begun: those who wait for it read for themselves.
func (s *sharing[K, V]) leave(key K, before, mine *reading[V], why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine.err = why
	if before.next == mine && s.last[key] == before {
		before.next = nil
		close(mine.done)
		return
	}
	s.past(key, mine)
}

func (s *sharing[K, V]) past(key K, mine *reading[V]) {
	if mine.next != nil {
		s.last[key] = mine.next
	} else {
		delete(s.last, key)
	}
	close(mine.done)
}
