package guardrail

import "regexp/syntax"

// maxMatchBytes bounds, in bytes, how long a match may be under way. What is longer counts as a match.
const maxMatchBytes = 64 << 10

// matchSpan is the part of a text from start to before end, in bytes.
type matchSpan struct {
	start, end int
	cut        bool // it counts as a match because it grew too long
}

// scanner looks for a program's matches in a text that comes character by character. It finds every part of the text
// that is inside of some match, however long, and knows from where on a match may still be under way: so what it finds
// does not depend on the pieces in which the text comes.
type scanner struct {
	*program
	pos       int
	before    rune     // the character before pos, -1 at the beginning
	active    []thread // matches under way, the earliest first
	ready     []thread // alive, at the states that look at a character
	round     uint32
	seen      []uint32 // by state, the round in which it was reached
	stack     []uint32
	openSpans []matchSpan // may still grow
	doneSpans []matchSpan // final, for the owner to take
	doneEnd   int         // done spans end here
	steps     int         // taken, for the owner to pay for
}

// thread is a match under way: the program's state, and where it began.
type thread struct {
	pc    uint32
	start int
}

func newScanner(p *program) *scanner {
	return &scanner{program: p, before: -1, seen: make([]uint32, len(p.Inst))}
}

// scanRune takes the text's next character, which is size bytes long.
func (s *scanner) scanRune(r rune, size int) {
	s.steps++
	if fresh := s.canBeginWith(r); fresh || len(s.active) > 0 {
		flags := s.conditionsBetween(s.before, r)
		s.advanceThreads(flags)
		if fresh {
			s.beginThreads(s.loadStartStates(flags, r))
		}
		s.active = s.active[:0]
		s.steps += len(s.ready)
		for _, t := range s.ready {
			if i := &s.Inst[t.pc]; i.MatchRune(r) {
				s.active = append(s.active, thread{i.Out, t.start})
			}
		}
	}
	s.before = r
	s.pos += size
	if len(s.active) > 0 && s.pos-s.active[0].start > maxMatchBytes {
		s.addMatch(matchSpan{s.active[0].start, s.pos, true})
		s.active = s.active[:0]
	}
	s.finalizeSpans()
}

// endScan says that the text is over.
func (s *scanner) endScan() {
	s.advanceThreads(s.conditionsBetween(s.before, -1))
	s.active = s.active[:0]
	s.finalizeSpans()
}

// finalOffset returns the offset before which nothing more will be found.
func (s *scanner) finalOffset() int {
	at := s.pos
	if len(s.active) > 0 {
		at = min(at, s.active[0].start)
	}
	if len(s.openSpans) > 0 {
		at = min(at, s.openSpans[0].start)
	}
	return max(at, s.doneEnd)
}

// advanceThreads brings every match under way to the states that look at the next character. Of two in the same state the one
// that began earlier counts: what becomes of the other becomes of it as well.
func (s *scanner) advanceThreads(flags syntax.EmptyOp) {
	s.ready = s.ready[:0]
	if s.round++; s.round == 0 {
		clear(s.seen)
		s.round = 1
	}
	for _, t := range s.active {
		s.advanceThread(t, flags)
	}
}

// beginThreads adds matches that begin at the next character, in the given states.
func (s *scanner) beginThreads(states []uint32) {
	s.steps += len(states)
	for _, pc := range states {
		if s.seen[pc] != s.round {
			s.ready = append(s.ready, thread{pc, s.pos})
		}
	}
}

func (s *scanner) advanceThread(t thread, flags syntax.EmptyOp) {
	s.stack = append(s.stack[:0], t.pc)
	for len(s.stack) > 0 {
		pc := s.stack[len(s.stack)-1]
		s.stack = s.stack[:len(s.stack)-1]
		s.steps++
		if s.seen[pc] == s.round {
			continue
		}
		s.seen[pc] = s.round
		switch i := &s.Inst[pc]; i.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			s.stack = append(s.stack, i.Out, i.Arg)
		case syntax.InstCapture, syntax.InstNop:
			s.stack = append(s.stack, i.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(i.Arg)&^flags == 0 {
				s.stack = append(s.stack, i.Out)
			}
		case syntax.InstMatch:
			s.addMatch(matchSpan{t.start, s.pos, false})
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			s.ready = append(s.ready, thread{pc, t.start})
		}
	}
}

// addMatch notes a match, joined with those it overlaps.
func (s *scanner) addMatch(m matchSpan) {
	m.start = max(m.start, s.doneEnd)
	for n := len(s.openSpans); n > 0 && s.openSpans[n-1].end > m.start; n-- {
		m.start = min(m.start, s.openSpans[n-1].start)
		m.cut = m.cut || s.openSpans[n-1].cut
		s.openSpans = s.openSpans[:n-1]
	}
	if m.start < m.end {
		s.openSpans = append(s.openSpans, m)
	}
}

// finalizeSpans moves what cannot grow any more, or must not, from open to done.
func (s *scanner) finalizeSpans() {
	for len(s.openSpans) > 0 {
		m := s.openSpans[0]
		long := m.end-m.start > maxMatchBytes
		if len(s.active) > 0 && s.active[0].start < m.end && !long {
			return
		}
		m.cut = m.cut || long
		s.doneSpans = append(s.doneSpans, m)
		s.openSpans = s.openSpans[1:]
		s.doneEnd = m.end
	}
}
