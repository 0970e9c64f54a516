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
	refine func(match string, before, after rune) []matchPart
	kind   string // of what is found, where refine does not say
	// replace returns what stands in the place of a found text that is to be modified.
	replace func(found, kind string) string
}

// matchPart is a piece of a match.
type matchPart struct {
	start, end int
	kind       string
}

// textMatch is a found part of a text.
type textMatch struct {
	matchPart
	detector int // the detector's place in the list
}

// textCheck checks one text as it comes. What it lets pass does not depend on the pieces in which the text comes. It keeps
// back what may yet be struck, which is at most maxMatchBytes and the piece that came last.
type textCheck struct {
	onMatch    func(d *detector, unjudged bool) // told of each detector that strikes, once, and of one that took too much work
	work       *pattern.StepBudget
	detectors  []detector
	collectAll bool // a block does not end it
	shadow     bool // nothing is changed or kept back

	scanners       []*scanner
	reported       []bool
	partialRune    string // bytes of a character that is not whole yet
	buffer         []byte // from the offset base on: what may be needed again
	bufferStart    int
	allowedEnd     int // offset of what has not passed yet
	matches        []textMatch
	costlyDetector int // the detector that the work failed at
	blocked        bool
	stopped        bool // nothing more is looked for
}

// newTextCheck returns a check that tells found of each detector that strikes, and is paid for from the work.
func newTextCheck(w *pattern.StepBudget, o output, shadow bool, found func(d *detector, unjudged bool)) *textCheck {
	t := &textCheck{work: w, onMatch: found, detectors: o.detectors, collectAll: o.collectAll, shadow: shadow, reported: make([]bool, len(o.detectors))}
	for _, d := range o.detectors {
		t.scanners = append(t.scanners, newScanner(d.program))
	}
	return t
}

// writeText takes the next piece of the text and returns what passes by now. After a block nothing passes.
func (t *textCheck) writeText(s string) string {
	s, t.partialRune = t.partialRune+s, ""
	if t.blocked {
		return ""
	}
	if t.stopped {
		return s
	}
	at := t.bufferStart + len(t.buffer)
	t.buffer = append(t.buffer, s...)
	for s != "" && utf8.FullRuneInString(s) && t.work.Err() == nil {
		size := t.scanRune(s)
		at, s = at+size, s[size:]
	}
	if t.work.Err() != nil {
		return t.stopCheck()
	}
	t.partialRune = s
	t.buffer = t.buffer[:at-t.bufferStart]
	return t.applyMatches(t.finalOffset())
}

// endText says that the text is over and returns the rest of it that passes.
func (t *textCheck) endText() string {
	rest := t.partialRune
	t.partialRune = ""
	if t.blocked {
		return ""
	}
	if t.stopped {
		return rest
	}
	at := t.bufferStart + len(t.buffer)
	t.buffer = append(t.buffer, rest...)
	for rest != "" && t.work.Err() == nil {
		size := t.scanRune(rest)
		at, rest = at+size, rest[size:]
	}
	for i, s := range t.scanners {
		s.endScan()
		t.collectMatches(i)
	}
	if t.work.Err() != nil {
		return t.stopCheck()
	}
	return t.applyMatches(at + 1)
}

// scanRune shows the detectors the character that s begins with and returns its size.
func (t *textCheck) scanRune(s string) int {
	r, size := utf8.DecodeRuneInString(s)
	for i, sc := range t.scanners {
		sc.scanRune(r, size)
		t.collectMatches(i)
		steps := sc.steps
		sc.steps = 0
		if t.work.SpendSteps(steps) != nil {
			t.costlyDetector = i
			break
		}
	}
	return size
}

// stopCheck ends the check of a text that took more work than is allowed, or whose context has ended: what has not passed is
// withheld, unless nothing that was found could change it. Where the context has ended nobody reads what passes.
func (t *textCheck) stopCheck() string {
	by := t.costlyDetector
	if !t.detectors[by].rule.Action.changesText() {
		by = max(by, slices.IndexFunc(t.detectors, func(d detector) bool { return d.rule.Action.changesText() }))
	}
	d := &t.detectors[by]
	if errors.Is(t.work.Err(), pattern.ErrTooManySteps) {
		t.onMatch(d, true)
	}
	if !t.shadow && d.rule.Action.changesText() {
		t.blocked, t.buffer = true, nil
		return ""
	}
	t.stopped = true
	return t.allowUpTo(t.bufferStart + len(t.buffer))
}

// collectMatches makes strikes of what the scanner of a detector has found.
func (t *textCheck) collectMatches(by int) {
	s, d := t.scanners[by], &t.detectors[by]
	for _, m := range s.doneSpans {
		parts := []matchPart{{0, m.end - m.start, d.kind}}
		if d.refine != nil && !m.cut {
			before, _ := utf8.DecodeLastRune(t.buffer[:m.start-t.bufferStart])
			after, _ := utf8.DecodeRune(t.buffer[m.end-t.bufferStart:])
			parts = d.refine(string(t.buffer[m.start-t.bufferStart:m.end-t.bufferStart]), before, after)
		}
		for _, p := range parts {
			t.matches = append(t.matches, textMatch{matchPart{m.start + p.start, m.start + p.end, p.kind}, by})
		}
	}
	s.doneSpans = s.doneSpans[:0]
}

// finalOffset returns the offset before which there will be no more strikes than there are.
func (t *textCheck) finalOffset() int {
	at := t.bufferStart + len(t.buffer)
	for _, s := range t.scanners {
		at = min(at, s.finalOffset())
	}
	return at
}

// applyMatches does what the strikes before limit ask for, in their order, and returns what passes.
func (t *textCheck) applyMatches(limit int) string {
	_ = t.work.SpendSteps(2 * len(t.matches)) // they are sorted each time; who looks at the next character sees the error
	slices.SortStableFunc(t.matches, func(a, b textMatch) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.detector, b.detector))
	})
	var out strings.Builder
	n := 0
	for ; n < len(t.matches) && t.matches[n].start < limit && !t.blocked && !t.stopped; n++ {
		t.applyMatch(&out, t.matches[n])
	}
	t.matches = slices.Delete(t.matches, 0, n)
	if !t.blocked {
		out.WriteString(t.allowUpTo(t.unchangeableOffset()))
		t.dropBefore(min(t.finalOffset(), t.allowedEnd))
	}
	return out.String()
}

func (t *textCheck) applyMatch(out *strings.Builder, s textMatch) {
	d := &t.detectors[s.detector]
	if !t.reported[s.detector] {
		t.reported[s.detector] = true
		t.onMatch(d, false)
	}
	switch {
	case d.rule.Action == Block && t.collectAll: // whoever has the whole answer decides
	case d.rule.Action == Block && t.shadow:
		t.stopped = true // what would follow would not have been looked at
	case d.rule.Action == Block:
		out.WriteString(t.allowUpTo(s.start))
		t.blocked, t.buffer = true, nil
	case d.rule.Action == Modify && !t.shadow && s.end > t.allowedEnd:
		if s.start >= t.allowedEnd {
			out.WriteString(t.allowUpTo(s.start))
			out.WriteString(d.replace(string(t.buffer[s.start-t.bufferStart:s.end-t.bufferStart]), s.kind))
		}
		t.allowedEnd = s.end
	}
}

// unchangeableOffset returns the offset before which nothing is left that could be changed.
func (t *textCheck) unchangeableOffset() int {
	at := t.bufferStart + len(t.buffer)
	if t.shadow || t.stopped {
		return at
	}
	for i, s := range t.scanners {
		if t.detectors[i].rule.Action.changesText() {
			at = min(at, s.finalOffset())
		}
	}
	for _, s := range t.matches {
		if t.detectors[s.detector].rule.Action.changesText() {
			at = min(at, s.start)
		}
	}
	return at
}

// allowUpTo returns the text up to offset to that has not passed yet.
func (t *textCheck) allowUpTo(to int) string {
	if to <= t.allowedEnd {
		return ""
	}
	s := string(t.buffer[t.allowedEnd-t.bufferStart : to-t.bufferStart])
	t.allowedEnd = to
	return s
}

// dropBefore drops what is before offset to, but for a character.
func (t *textCheck) dropBefore(to int) {
	if n := to - t.bufferStart - utf8.UTFMax; n > 0 {
		t.buffer, t.bufferStart = slices.Delete(t.buffer, 0, n), t.bufferStart+n
	}
}
