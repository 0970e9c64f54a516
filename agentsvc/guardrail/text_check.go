package guardrail

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"stoa/agentsvc/pattern"
)

// detector is one thing that an output check looks for: the matches of a program, or the parts of them that refine
// returns. It is read-only and shared by all checks of a guardrail.
type detector struct {
	check   string
	rule    Rule
	program *program
	// refine returns the parts of a match that count, given the characters around the match; nil: the whole match
	// counts.
	refine func(match string, before, after rune) []matchPart
	// kind is the kind of data found, if refine is nil.
	kind string
	// replace returns the text that replaces found data if the rule's action is Modify.
	replace func(found, kind string) string
}

// matchPart is a part of a match, by byte offsets, with the kind of data that it is.
type matchPart struct {
	start, end int
	kind       string
}

// textMatch is a match of a detector in the text; the offsets are those of the text.
type textMatch struct {
	matchPart
	// detector is the index in textCheck.detectors.
	detector int
}

// textCheck checks one text while it arrives. What it allows does not depend on the pieces. It keeps back what a match
// may still change: at most maxMatchBytes and the last piece.
//
// The text has three offsets: bufferStart <= allowedEnd <= the end of buffer. Text before allowedEnd was allowed or
// replaced; text before bufferStart is forgotten.
type textCheck struct {
	// onMatch is called once for each detector that matches, and for the one at which the budget failed (unjudged).
	onMatch   func(d *detector, unjudged bool)
	work      *pattern.StepBudget
	detectors []detector
	// collectAll: a block does not end the check, see Output.CollectAll.
	collectAll bool
	// shadow: nothing is changed or kept back.
	shadow bool

	// scanners and reported have one element for each detector.
	scanners []*scanner
	reported []bool
	// partialRune holds the bytes of an incomplete character at the end of the last piece.
	partialRune string
	// buffer is the text from offset bufferStart on.
	buffer      []byte
	bufferStart int
	// allowedEnd is the offset up to which the text was allowed or replaced.
	allowedEnd int
	// addedBytes is how much longer the replacements are than what they replaced.
	addedBytes int
	// matches are found, and not applied yet.
	matches []textMatch
	// costlyDetector is the index of the detector at which the budget failed.
	costlyDetector int
	// blocked: nothing more is allowed.
	blocked bool
	// stopped: the check is over, and the rest of the text is allowed unseen.
	stopped bool
}

// newTextCheck returns a check that calls found for each detector that matches and spends w.
func newTextCheck(w *pattern.StepBudget, o output, shadow bool, found func(d *detector, unjudged bool)) *textCheck {
	t := &textCheck{work: w, onMatch: found, detectors: o.detectors, collectAll: o.collectAll, shadow: shadow, reported: make([]bool, len(o.detectors))}
	for _, d := range o.detectors {
		t.scanners = append(t.scanners, newScanner(d.program))
	}
	return t
}

// writeText processes the next piece of the text and returns what is allowed by now. After a block it returns "". A long
// piece is processed in several, so that the matches in it are not all kept at a time.
func (t *textCheck) writeText(s string) string {
	if len(s) <= maxCheckedPiece {
		return t.writePiece(s)
	}
	var out strings.Builder
	out.Grow(len(s))
	for s != "" {
		n := min(len(s), maxCheckedPiece)
		piece := t.writePiece(s[:n])
		if len(piece) > out.Cap()-out.Len() {
			out.Grow(len(piece)) // doubles; WriteString would copy many times
		}
		out.WriteString(piece)
		s = s[n:]
	}
	return out.String()
}

// Replacements may make a text longer by maxAddedFactor times its length, and by minAddedBytes in any case. Beyond that the
// budget fails.
const (
	maxAddedFactor = 1
	minAddedBytes  = 64 << 10
)

// maxCheckedPiece bounds, in bytes, what of a text is searched before the matches in it are applied.
const maxCheckedPiece = 16 << 10

// writePiece is writeText for at most maxCheckedPiece.
func (t *textCheck) writePiece(s string) string {
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

// endText processes the end of the text and returns the allowed rest.
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

// scanRune passes the first character of s to all scanners and returns its size in bytes.
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

// stopCheck ends the check of a text after the budget failed. The text is blocked, unless no detector could change it.
// The finding is that of the detector at which the budget failed, or of one that changes text if that one does not.
// After the end of the context the result does not matter: AnswerCheck allows nothing.
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

// collectMatches takes the final spans of the i-th scanner as matches of its detector.
func (t *textCheck) collectMatches(by int) {
	s, d := t.scanners[by], &t.detectors[by]
	for _, m := range s.doneSpans {
		if d.refine == nil || m.cut {
			t.matches = append(t.matches, textMatch{matchPart{m.start, m.end, d.kind}, by})
			continue
		}
		before, _ := utf8.DecodeLastRune(t.buffer[:m.start-t.bufferStart])
		after, _ := utf8.DecodeRune(t.buffer[m.end-t.bufferStart:])
		for _, p := range d.refine(string(t.buffer[m.start-t.bufferStart:m.end-t.bufferStart]), before, after) {
			t.matches = append(t.matches, textMatch{matchPart{m.start + p.start, m.start + p.end, p.kind}, by})
		}
	}
	s.doneSpans = s.doneSpans[:0]
}

// finalOffset returns the offset before which no scanner can find a further match.
func (t *textCheck) finalOffset() int {
	at := t.bufferStart + len(t.buffer)
	for _, s := range t.scanners {
		at = min(at, s.finalOffset())
	}
	return at
}

// applyMatches applies the matches that begin before offset limit, in the order of their offsets, and returns the text
// that is allowed by now. A match that begins later may still be preceded by one that is not found yet.
func (t *textCheck) applyMatches(limit int) string {
	_ = t.work.SpendSteps(2 * len(t.matches)) // the cost of sorting; the error is returned at the next character
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

// applyMatch applies one match: it reports the detector, and writes the text before the match and its replacement to
// out, or blocks. A match that overlaps an applied one is cut off.
func (t *textCheck) applyMatch(out *strings.Builder, s textMatch) {
	d := &t.detectors[s.detector]
	if !t.reported[s.detector] {
		t.reported[s.detector] = true
		t.onMatch(d, false)
	}
	switch {
	case d.rule.Action == Block && t.collectAll: // AnswerCheck.EndAnswer decides about the whole answer
	case d.rule.Action == Block && t.shadow:
		t.stopped = true // in earnest, the check would have ended here
	case d.rule.Action == Block:
		out.WriteString(t.allowUpTo(s.start))
		t.blocked, t.buffer = true, nil
	case d.rule.Action == Modify && !t.shadow && s.end > t.allowedEnd:
		if s.start >= t.allowedEnd {
			out.WriteString(t.allowUpTo(s.start))
			replacement := d.replace(string(t.buffer[s.start-t.bufferStart:s.end-t.bufferStart]), s.kind)
			out.WriteString(replacement)
			t.addedBytes += len(replacement) - (s.end - s.start)
			if t.addedBytes > maxAddedFactor*s.end+minAddedBytes {
				t.costlyDetector = s.detector
				_ = t.work.FailTooManySteps() // returned at the next piece, or at the end
			}
		}
		t.allowedEnd = s.end
	}
}

// unchangeableOffset returns the offset before which no match in progress and no unapplied match can change the text.
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

// allowUpTo returns the text from allowedEnd to offset to and advances allowedEnd.
func (t *textCheck) allowUpTo(to int) string {
	if to <= t.allowedEnd {
		return ""
	}
	s := string(t.buffer[t.allowedEnd-t.bufferStart : to-t.bufferStart])
	t.allowedEnd = to
	return s
}

// dropBefore forgets the text before offset to, except one character, which refine may need.
func (t *textCheck) dropBefore(to int) {
	if n := to - t.bufferStart - utf8.UTFMax; n > 0 {
		t.buffer, t.bufferStart = slices.Delete(t.buffer, 0, n), t.bufferStart+n
	}
}
