package pattern

import (
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// matcher runs a pattern's program over a text: it holds the states of all matches under way, the preferred first, and
// takes them from one character to the next (Pike's algorithm, as in regexp/exec.go). Its time is bounded by the length of
// the text times the size of the program, and it counts what it takes.
type matcher struct {
	*Pattern
	current, next stateSet
	groups        []int // of the match that is being followed: offsets, -1 = none
	found         []int // of the best match so far
	steps         int   // not spent yet
}

// stateSet is a set of states in the order of preference.
type stateSet struct {
	positions []uint32 // of a state in states
	states    []uint32
	threads   []uint32 // those of states that look at a character, or match
	groups    []int    // of each thread
}

func (q *stateSet) clearStates() { q.states, q.threads = q.states[:0], q.threads[:0] }

func (q *stateSet) hasState(pc uint32) bool {
	i := q.positions[pc]
	return int(i) < len(q.states) && q.states[i] == pc
}

func (p *Pattern) getMatcher() *matcher {
	if m, ok := p.matcherPool.Get().(*matcher); ok {
		return m
	}
	n := len(p.prog.Inst)
	return &matcher{Pattern: p, current: stateSet{positions: make([]uint32, n)}, next: stateSet{positions: make([]uint32, n)}}
}

// findMatch returns the offsets of the first match that begins at pos or later, groups of them, or nil if there is none. With
// no groups it returns an empty list for a match.
func (p *Pattern) findMatch(w *StepBudget, text string, pos, groups int) ([]int, error) {
	w.BeginComputation()
	defer w.EndComputation()
	m := p.getMatcher()
	defer p.matcherPool.Put(m)
	m.groups, m.found = make([]int, groups), nil
	m.current.clearStates()
	m.next.clearStates()
	m.steps = 8
	err := m.runSearch(w, text, pos)
	if err == nil {
		err = w.SpendSteps(m.steps)
	}
	m.groups = nil
	if err != nil {
		return nil, err
	}
	return m.found, nil
}

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
				m.steps += 1 + (at-pos)/8 // it is far quicker than a step for each character
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

// skipToStart returns the offset, from pos on, before which no match begins. It looks at a slice of the text.
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

// decodeRune returns the character at pos, -1 at the end.
func decodeRune(text string, pos int) (rune, int) {
	if pos >= len(text) {
		return -1, 0
	}
	if b := text[pos]; b < utf8.RuneSelf {
		return rune(b), 1
	}
	return utf8.DecodeRuneInString(text[pos:])
}

// advanceThreads takes the threads of run past the character r, which ends at end. A match cuts off what is less preferred.
func (m *matcher) advanceThreads(r rune, pos, end int, flags syntax.EmptyOp) {
	n := len(m.groups)
	for t, pc := range m.current.threads {
		m.steps++
		i := &m.prog.Inst[pc]
		if i.Op == syntax.InstMatch {
			if m.found == nil {
				m.found = make([]int, n)
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

// addState adds the state pc to q, and those that it leads to at pos without a character.
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
		default: // a match, or a state that looks at a character
			m.addThread(q, pc)
			return
		}
	}
}

// startStates are the states in which a match begins and that accept a character, by ASCII character, in the order of
// preference. Those that match accept every one.
type startStates [utf8.RuneSelf][]uint32

// maxStartStates bounds the memory that the states take. Where there are more of them, all are tried at each character.
const maxStartStates = 256

// canStart reports whether a match can begin where flags hold and r comes next.
func (p *Pattern) canStart(flags syntax.EmptyOp, r rune) bool {
	return r < 0 || r >= utf8.RuneSelf || len(p.startStatesAt(flags)[r]) > 0
}

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

// addStartStates adds the states in which a match begins at pos, where r comes next.
func (m *matcher) addStartStates(pos int, r rune, flags syntax.EmptyOp) {
	for i := range m.groups {
		m.groups[i] = -1
	}
	if len(m.groups) > 0 {
		m.groups[0] = pos
	}
	if r < 0 || r >= utf8.RuneSelf || len(m.names) > 0 { // a named group may begin here as well
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

// addThread adds a state that looks at a character, or matches.
func (m *matcher) addThread(q *stateSet, pc uint32) {
	q.threads = append(q.threads, pc)
	if n := len(m.groups); n > 0 {
		q.groups = append(q.groups[:(len(q.threads)-1)*n], m.groups...)
		m.steps += n / 4
	}
}
