package guardrail

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"stoa/agentsvc/pattern"
)

// detector is what a check of the output looks for: the matches of a program, or the parts of them that refine names.
type detector struct {
	check   string
	rule    Rule
	program *program
	// refine returns the parts of a match, given the characters around it, that count; nil: all of it counts.
	refine func(match string, before, after rune) []part
	kind   string // of what is found, where refine does not say
	// replace returns what stands in the place of a found text that is to be modified.
	replace func(found, kind string) string
}

// part is a piece of a match.
type part struct {
	start, end int
	kind       string
}

// strike is a found part of a text.
type strike struct {
	part
	by int // the detector's place in the list
}

// text checks one text as it comes. What it lets pass does not depend on the pieces in which the text comes. It keeps
// back what may yet be struck, which is at most maxSpan and the piece that came last.
type text struct {
	found     func(d *detector, unjudged bool) // told of each detector that strikes, once, and of one that took too much work
	work      *pattern.Work
	detectors []detector
	collect   bool // a block does not end it
	shadow    bool // nothing is changed or kept back

	scanners []*scanner
	told     []bool
	tail     string // bytes of a character that is not whole yet
	kept     []byte // from the offset base on: what may be needed again
	base     int
	shown    int // offset of what has not passed yet
	strikes  []strike
	costly   int // the detector that the work failed at
	blocked  bool
	over     bool // nothing more is looked for
}

// newText returns a check that tells found of each detector that strikes, and is paid for from the work.
func newText(w *pattern.Work, o output, shadow bool, found func(d *detector, unjudged bool)) *text {
	t := &text{work: w, found: found, detectors: o.detectors, collect: o.collectAll, shadow: shadow, told: make([]bool, len(o.detectors))}
	for _, d := range o.detectors {
		t.scanners = append(t.scanners, newScanner(d.program))
	}
	return t
}

// write takes the next piece of the text and returns what passes by now. After a block nothing passes.
func (t *text) write(s string) string {
	s, t.tail = t.tail+s, ""
	if t.blocked {
		return ""
	}
	if t.over {
		return s
	}
	at := t.base + len(t.kept)
	t.kept = append(t.kept, s...)
	for s != "" && utf8.FullRuneInString(s) && t.work.Err() == nil {
		size := t.step(s)
		at, s = at+size, s[size:]
	}
	if t.work.Err() != nil {
		return t.giveUp()
	}
	t.tail = s
	t.kept = t.kept[:at-t.base]
	return t.act(t.settled())
}

// end says that the text is over and returns the rest of it that passes.
func (t *text) end() string {
	rest := t.tail
	t.tail = ""
	if t.blocked {
		return ""
	}
	if t.over {
		return rest
	}
	at := t.base + len(t.kept)
	t.kept = append(t.kept, rest...)
	for rest != "" && t.work.Err() == nil {
		size := t.step(rest)
		at, rest = at+size, rest[size:]
	}
	for i, s := range t.scanners {
		s.finish()
		t.gather(i)
	}
	if t.work.Err() != nil {
		return t.giveUp()
	}
	return t.act(at + 1)
}

// step shows the detectors the character that s begins with and returns its size.
func (t *text) step(s string) int {
	r, size := utf8.DecodeRuneInString(s)
	for i, sc := range t.scanners {
		sc.step(r, size)
		t.gather(i)
		steps := sc.steps
		sc.steps = 0
		if t.work.Spend(steps) != nil {
			t.costly = i
			break
		}
	}
	return size
}

// giveUp ends the check of a text that took more work than is allowed, or whose context has ended: what has not passed is
// withheld, unless nothing that was found could change it. Where the context has ended nobody reads what passes.
func (t *text) giveUp() string {
	by := t.costly
	if !t.detectors[by].rule.Action.changes() {
		by = max(by, slices.IndexFunc(t.detectors, func(d detector) bool { return d.rule.Action.changes() }))
	}
	d := &t.detectors[by]
	if errors.Is(t.work.Err(), pattern.ErrTooMuch) {
		t.found(d, true)
	}
	if !t.shadow && d.rule.Action.changes() {
		t.blocked, t.kept = true, nil
		return ""
	}
	t.over = true
	return t.pass(t.base + len(t.kept))
}

// gather makes strikes of what the scanner of a detector has found.
func (t *text) gather(by int) {
	s, d := t.scanners[by], &t.detectors[by]
	for _, m := range s.done {
		parts := []part{{0, m.end - m.start, d.kind}}
		if d.refine != nil && !m.cut {
			before, _ := utf8.DecodeLastRune(t.kept[:m.start-t.base])
			after, _ := utf8.DecodeRune(t.kept[m.end-t.base:])
			parts = d.refine(string(t.kept[m.start-t.base:m.end-t.base]), before, after)
		}
		for _, p := range parts {
			t.strikes = append(t.strikes, strike{part{m.start + p.start, m.start + p.end, p.kind}, by})
		}
	}
	s.done = s.done[:0]
}

// settled returns the offset before which there will be no more strikes than there are.
func (t *text) settled() int {
	at := t.base + len(t.kept)
	for _, s := range t.scanners {
		at = min(at, s.settled())
	}
	return at
}

// act does what the strikes before limit ask for, in their order, and returns what passes.
func (t *text) act(limit int) string {
	_ = t.work.Spend(2 * len(t.strikes)) // they are sorted each time; who looks at the next character sees the error
	slices.SortStableFunc(t.strikes, func(a, b strike) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.by, b.by)) })
	var out strings.Builder
	n := 0
	for ; n < len(t.strikes) && t.strikes[n].start < limit && !t.blocked && !t.over; n++ {
		t.strike(&out, t.strikes[n])
	}
	t.strikes = slices.Delete(t.strikes, 0, n)
	if !t.blocked {
		out.WriteString(t.pass(t.free()))
		t.forget(min(t.settled(), t.shown))
	}
	return out.String()
}

func (t *text) strike(out *strings.Builder, s strike) {
	d := &t.detectors[s.by]
	if !t.told[s.by] {
		t.told[s.by] = true
		t.found(d, false)
	}
	switch {
	case d.rule.Action == Block && t.collect: // whoever has the whole answer decides
	case d.rule.Action == Block && t.shadow:
		t.over = true // what would follow would not have been looked at
	case d.rule.Action == Block:
		out.WriteString(t.pass(s.start))
		t.blocked, t.kept = true, nil
	case d.rule.Action == Modify && !t.shadow && s.end > t.shown:
		if s.start >= t.shown {
			out.WriteString(t.pass(s.start))
			out.WriteString(d.replace(string(t.kept[s.start-t.base:s.end-t.base]), s.kind))
		}
		t.shown = s.end
	}
}

// free returns the offset before which nothing is left that could be changed.
func (t *text) free() int {
	at := t.base + len(t.kept)
	if t.shadow || t.over {
		return at
	}
	for i, s := range t.scanners {
		if t.detectors[i].rule.Action.changes() {
			at = min(at, s.settled())
		}
	}
	for _, s := range t.strikes {
		if t.detectors[s.by].rule.Action.changes() {
			at = min(at, s.start)
		}
	}
	return at
}

// pass returns the text up to offset to that has not passed yet.
func (t *text) pass(to int) string {
	if to <= t.shown {
		return ""
	}
	s := string(t.kept[t.shown-t.base : to-t.base])
	t.shown = to
	return s
}

// forget drops what is before offset to, but for a character.
func (t *text) forget(to int) {
	if n := to - t.base - utf8.UTFMax; n > 0 {
		t.kept, t.base = slices.Delete(t.kept, 0, n), t.base+n
	}
}
