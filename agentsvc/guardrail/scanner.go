package guardrail

import (
	"regexp/syntax"
	"slices"
)

// maxMatchBytes bounds, in bytes, the length of a match in progress, and with it what a text check keeps back. A longer
// one counts as a match.
const maxMatchBytes = 64 << 10

// matchSpan is the part of a text from byte offset start to before end.
type matchSpan struct {
	start, end int
	// cut reports that the span counts as a match because it grew too long.
	cut bool
}

// scanner finds the matches of a program in a text that arrives in pieces, one character at a time. Unlike package
// regexp, it finds every part of the text that is inside some match, whatever its length, and knows from which offset
// on a match may still be in progress. So its result does not depend on the pieces, and text before that offset can be
// released. It is used by one goroutine, and carries go:norace where the matcher of package pattern does, for the same
// reason.
type scanner struct {
	*program
	// pos is the byte offset behind the last character.
	pos int
	// before is the character before pos, -1 at the beginning.
	before rune
	// active are the matches in progress, the earliest start first.
	active []thread
	// ready is working memory of scanRune: the threads at instructions that consume a character.
	ready []thread
	// round numbers the calls of advanceThreads; seen[pc] == round means that pc was reached in this call. So seen need
	// not be cleared for each character.
	round uint32
	seen  []uint32
	// stack is working memory of advanceThread.
	stack []uint32
	// openSpans are matches that may still grow or be joined, in order.
	openSpans []matchSpan
	// doneSpans are final matches; the text check takes them and resets the slice.
	doneSpans []matchSpan
	// doneEnd is the end of the last final match.
	doneEnd int
	// steps counts the cost since the text check last spent it.
	steps int
}

// thread is a match in progress: the program's instruction, and the byte offset where the match began.
type thread struct {
	pc    uint32
	start int
}

// newScanner returns a scanner at the beginning of a text.
func newScanner(p *program) *scanner {
	return &scanner{program: p, before: -1, seen: make([]uint32, len(p.Inst))}
}

// scanRune processes the next character, which is size bytes long in the text.
//
//go:norace
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

// endScan processes the end of the text. Afterwards all matches are final.
func (s *scanner) endScan() {
	s.advanceThreads(s.conditionsBetween(s.before, -1))
	s.active = s.active[:0]
	s.finalizeSpans()
}

// finalOffset returns the offset before which no further match will be found.
//
//go:norace
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

// advanceThreads moves every thread to the instructions that consume the next character, into ready. Of two threads at
// the same instruction only the one that began earlier is kept: their future is the same, and the longer span covers
// the other.
//
//go:norace
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

// beginThreads adds threads that begin at the next character, at the given instructions.
//
//go:norace
func (s *scanner) beginThreads(states []uint32) {
	s.steps += len(states)
	for _, pc := range states {
		if s.seen[pc] != s.round {
			s.ready = append(s.ready, thread{pc, s.pos})
		}
	}
}

// advanceThread follows one thread over the instructions that consume nothing. The stack is explicit, since recursion
// would be as deep as the program is long.
//
//go:norace
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

// addMatch adds a match to openSpans, joined with those it overlaps.
//
//go:norace
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

// finalizeSpans moves the spans that cannot grow any more, or are too long to wait for, to doneSpans.
//
//go:norace
func (s *scanner) finalizeSpans() {
	n := 0
	for _, m := range s.openSpans {
		long := m.end-m.start > maxMatchBytes
		if len(s.active) > 0 && s.active[0].start < m.end && !long {
			break
		}
		m.cut = m.cut || long
		s.doneSpans = append(s.doneSpans, m)
		s.doneEnd = m.end
		n++
	}
	if n > 0 {
		s.openSpans = slices.Delete(s.openSpans, 0, n)
	}
}
