package pattern

import (
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// matcher runs a pattern's program over a text (Pike's algorithm, as in regexp/exec.go): it keeps the states of all
// matches in progress, the preferred first, and advances them by one character at a time. Its time is bounded by the
// length of the text times the size of the program, and it counts its steps. A matcher is used by one goroutine at a
// time and returned to the pattern's pool.
//
// The functions that run for each character carry go:norace: they change only the matcher's own memory and read the
// program, which nothing changes, and the race detector would make the tests of costly patterns four times as long.
type matcher struct {
	*Pattern
	// current are the states before the present character, next those after it; they are swapped at each character.
	current, next stateSet
	// groups holds the group offsets of the match that is being advanced, -1 = unset; 0 and 1 are the match itself.
	groups []int
	// found is a copy of groups for the best match so far, nil if there is none.
	found []int
	// foundBuffer is the memory of found.
	foundBuffer []int
	// steps counts the steps since the last SpendSteps.
	steps int
}

// stateSet is an ordered set of states (program counters), the preferred first. positions and states form a sparse set:
// clearing it is O(1), and positions need no initialisation.
type stateSet struct {
	// positions is the index in states of each state that is in the set; meaningless for others, see hasState.
	positions []uint32
	states    []uint32
	// threads are the states that consume a character or match, i.e. those that advanceThreads looks at.
	threads []uint32
	// groups holds the group offsets of each thread, len(matcher.groups) for each.
	groups []int
}

// clearStates empties the set and keeps its memory.
//
//go:norace
func (s *stateSet) clearStates() { s.states, s.threads = s.states[:0], s.threads[:0] }

// hasState reports whether the set contains pc. The check of states[i] makes stale positions harmless.
//
//go:norace
func (s *stateSet) hasState(pc uint32) bool {
	i := s.positions[pc]
	return int(i) < len(s.states) && s.states[i] == pc
}

// getMatcher returns a matcher from the pool or a new one. A pooled one has states of an earlier match.
func (p *Pattern) getMatcher() *matcher {
	if m, ok := p.matcherPool.Get().(*matcher); ok {
		return m
	}
	n := len(p.prog.Inst)
	return &matcher{Pattern: p, foundBuffer: make([]int, 0, 2), current: stateSet{positions: make([]uint32, n)}, next: stateSet{positions: make([]uint32, n)}}
}

// findMatch returns the first groups offsets (start and end of the match, then of each group) of the leftmost match
// that begins at pos or later, or nil if there is none. With groups 0 it returns an empty, non-nil slice for a match,
// and stops at the first one it finds.
func (p *Pattern) findMatch(w *StepBudget, text string, pos, groups int) ([]int, error) {
	m := p.getMatcher()
	defer p.matcherPool.Put(m)
	at, err := m.findMatch(w, text, pos, groups)
	return slices.Clone(at), err
}

// findMatch is [Pattern.findMatch]. The result is valid until the next call.
func (m *matcher) findMatch(w *StepBudget, text string, pos, groups int) ([]int, error) {
	w.BeginComputation()
	defer w.EndComputation()
	m.groups, m.found = slices.Grow(m.groups[:0], groups)[:groups], nil
	m.current.clearStates()
	m.next.clearStates()
	// The constant is the cost of a call by itself, so that many matches on tiny texts are paid for too.
	m.steps = 8
	err := m.runSearch(w, text, pos)
	if err == nil {
		err = w.SpendSteps(m.steps)
	}
	if err != nil {
		return nil, err
	}
	return m.found, nil
}

// runSearch runs the program from pos until the preferred match is complete, the text ends, or the budget is spent.
//
//go:norace
func (m *matcher) runSearch(w *StepBudget, text string, pos int) error {
	before := rune(-1)
	if pos > 0 {
		before, _ = utf8.DecodeLastRuneInString(text[:pos])
	}
	for {
		if len(m.current.threads) == 0 {
			if m.found != nil || m.anchored && pos > 0 {
				return nil
			}
			if at := m.skipToStart(text, pos, before); at > pos {
				m.steps += 1 + (at-pos)/8 // skipping is far quicker than one step for each character
				before, _ = utf8.DecodeLastRuneInString(text[:at])
				pos = at
			}
			m.current.clearStates()
		}
		r, width := decodeRune(text, pos)
		if flags := syntax.EmptyOpContext(before, r); m.found == nil && m.canStart(flags, r) {
			m.addStartStates(pos, r, flags)
		}
		after, _ := decodeRune(text, pos+width)
		m.advanceThreads(r, pos, pos+width, syntax.EmptyOpContext(r, after))
		if width == 0 || m.found != nil && len(m.groups) == 0 {
			return nil
		}
		steps := m.steps
		m.steps = 1
		if err := w.SpendSteps(steps); err != nil {
			return err
		}
		before, pos = r, pos+width
		m.current, m.next = m.next, m.current
		m.next.clearStates()
	}
}

// skipToStart returns the next offset from pos on at which a match may begin. Without a literal prefix it looks at no
// more than SliceSteps bytes, so that the caller spends steps in between.
//
//go:norace
func (m *matcher) skipToStart(text string, pos int, before rune) int {
	if m.prefix != "" {
		if i := strings.Index(text[pos:], m.prefix); i >= 0 {
			return pos + i
		}
		return len(text)
	}
	for end := min(len(text), pos+SliceSteps); pos < end && text[pos] < utf8.RuneSelf; pos++ {
		r := rune(text[pos])
		if m.canStart(syntax.EmptyOpContext(before, r), r) {
			break
		}
		before = r
	}
	return pos
}

// decodeRune returns the character at pos and its width in bytes; -1 and 0 at the end. ASCII has a fast path.
//
//go:norace
func decodeRune(text string, pos int) (rune, int) {
	if pos >= len(text) {
		return -1, 0
	}
	if b := text[pos]; b < utf8.RuneSelf {
		return rune(b), 1
	}
	return utf8.DecodeRuneInString(text[pos:])
}

// advanceThreads advances the threads of m.current over the character r at pos into m.next; r is -1 at the end of the
// text. flags are the empty-width conditions at end. A match ends the loop: the threads after it are less preferred.
//
//go:norace
func (m *matcher) advanceThreads(r rune, pos, end int, flags syntax.EmptyOp) {
	n := len(m.groups)
	for t, pc := range m.current.threads {
		m.steps++
		i := &m.prog.Inst[pc]
		if i.Op == syntax.InstMatch {
			if m.found == nil {
				m.foundBuffer = slices.Grow(m.foundBuffer[:0], n)[:n]
				m.found = m.foundBuffer
			}
			if n > 0 {
				copy(m.found, m.current.groups[t*n:])
				m.found[1] = pos
			}
			return
		}
		if r < 0 || !acceptsRune(i, r) {
			continue
		}
		if n > 0 {
			copy(m.groups, m.current.groups[t*n:])
		}
		m.addState(&m.next, i.Out, end, flags)
	}
}

// acceptsRune reports whether the instruction accepts r. It has fast paths for what most instructions are.
//
//go:norace
func acceptsRune(i *syntax.Inst, r rune) bool {
	switch i.Op {
	case syntax.InstRune1:
		return r == i.Rune[0]
	case syntax.InstRuneAny:
		return true
	case syntax.InstRuneAnyNotNL:
		return r != '\n'
	default:
		return i.MatchRune(r)
	}
}

// addState adds the state pc to q, and all states that it leads to at pos without consuming a character. Its recursion
// is as deep as the program has branches, which MaxInstructions bounds.
//
//go:norace
func (m *matcher) addState(q *stateSet, pc uint32, pos int, flags syntax.EmptyOp) {
	for {
		m.steps++
		if q.hasState(pc) {
			return
		}
		q.positions[pc] = uint32(len(q.states))
		q.states = append(q.states, pc)
		switch i := &m.prog.Inst[pc]; i.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			m.addState(q, i.Out, pos, flags)
			pc = i.Arg
		case syntax.InstNop:
			pc = i.Out
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(i.Arg)&^flags != 0 {
				return
			}
			pc = i.Out
		case syntax.InstCapture:
			if int(i.Arg) >= len(m.groups) {
				pc = i.Out
				continue
			}
			old := m.groups[i.Arg]
			m.groups[i.Arg] = pos
			m.addState(q, i.Out, pos, flags)
			m.groups[i.Arg] = old
			return
		case syntax.InstFail:
			return
		default: // InstMatch, or an instruction that consumes a character
			m.addThread(q, pc)
			return
		}
	}
}

// startStates are the states in which a match can begin, by the ASCII character that they accept, the preferred first.
// States that match accept every character.
type startStates [utf8.RuneSelf][]uint32

// maxStartStates bounds the memory of a startStates. If a pattern begins in more states, the list of all of them is
// shared by every character.
const maxStartStates = 256

// canStart reports whether a match can begin where flags hold and r is the next character. For characters beyond ASCII
// it is always true.
func (p *Pattern) canStart(flags syntax.EmptyOp, r rune) bool {
	return r < 0 || r >= utf8.RuneSelf || len(p.startStatesAt(flags)[r]) > 0
}

// startStatesAt returns the start states under flags, from the cache if possible.
func (p *Pattern) startStatesAt(flags syntax.EmptyOp) *startStates {
	if b := p.startsByFlags[flags].Load(); b != nil {
		return b
	}
	m, b := p.getMatcher(), new(startStates)
	m.current.clearStates()
	m.groups = nil
	m.addState(&m.current, uint32(p.prog.Start), 0, flags)
	states := slices.Clone(m.current.threads)
	for _, pc := range m.current.threads {
		i := &p.prog.Inst[pc]
		for r := range b {
			if len(m.current.threads) > maxStartStates {
				b[r] = states
				continue
			}
			if i.Op == syntax.InstMatch || acceptsRune(i, rune(r)) {
				b[r] = append(b[r], pc)
			}
		}
	}
	p.startsByFlags[flags].Store(b)
	return b
}

// addStartStates adds to m.current the states in which a match begins at pos, where r is the next character.
//
//go:norace
func (m *matcher) addStartStates(pos int, r rune, flags syntax.EmptyOp) {
	for i := range m.groups {
		m.groups[i] = -1
	}
	if len(m.groups) > 0 {
		m.groups[0] = pos
	}
	if r < 0 || r >= utf8.RuneSelf || len(m.names) > 0 { // a named group may begin here, which only addState records
		m.addState(&m.current, uint32(m.prog.Start), pos, flags)
		return
	}
	for _, pc := range m.startStatesAt(flags)[r] {
		if m.steps++; !m.current.hasState(pc) {
			m.current.positions[pc] = uint32(len(m.current.states))
			m.current.states = append(m.current.states, pc)
			m.addThread(&m.current, pc)
		}
	}
}

// addThread adds a state that consumes a character or matches to q's threads, with a copy of the groups.
//
//go:norace
func (m *matcher) addThread(q *stateSet, pc uint32) {
	q.threads = append(q.threads, pc)
	if n := len(m.groups); n > 0 {
		q.groups = append(q.groups[:(len(q.threads)-1)*n], m.groups...)
		m.steps += n / 4
	}
}
