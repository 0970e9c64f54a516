package chunk

import (
	"strings"
	"unicode/utf8"

	"stoa/agentsvc/document"
)

// places knows where each part of the text stands in the document.
type places struct {
	text     string
	sections []document.Section
	starts   []int // byte offsets of the sections, and of the end of the text

	near int // a section near the last chunk: chunks are in their order
	line struct {
		section, offset, number int // the line number at an offset in a section, to count from
	}
}

// newPlaces returns the places of c, whose joined text is text.
func newPlaces(c document.Content, text string) *places {
	p := &places{text: text, sections: c.Sections, starts: make([]int, len(c.Sections)+1)}
	for i, s := range c.Sections {
		p.starts[i+1] = p.starts[i] + len(s.Text)
	}
	p.line.section = -1
	return p
}

// isSameStretch reports whether two adjacent sections differ by their lines only.
func (p *places) isSameStretch(i, j int) bool {
	a, b := p.sections[i].Place, p.sections[j].Place
	return a.Page == b.Page && a.Sheet == b.Sheet && a.Heading == b.Heading
}

// groupStretches returns the parts of the text that are cut independently of each other: stretches of one page,
// heading and sheet. A part of fewer than minSize characters is joined with the next one, the last with the one before
// it.
func (p *places) groupStretches(minSize int) []span {
	var groups []span
	begin, size := 0, 0 // of the present group: its first section and its characters
	for i := range p.sections {
		size += utf8.RuneCountInString(p.sections[i].Text)
		if i+1 < len(p.sections) && (p.isSameStretch(i, i+1) || size < minSize) {
			continue
		}
		if size < minSize && len(groups) > 0 {
			groups[len(groups)-1].end = p.starts[i+1]
			break
		}
		groups = append(groups, span{p.starts[begin], p.starts[i+1]})
		begin, size = i+1, 0
	}
	return groups
}

// placeOf returns where a span stands: the page, headings and sheet of most of its text, and the line at which that part
// begins.
func (p *places) placeOf(s span) document.Place {
	for p.near > 0 && p.starts[p.near] > s.start {
		p.near--
	}
	for p.starts[p.near+1] <= s.start {
		p.near++
	}
	best, bestSize := p.near, 0
	for i := p.near; i < len(p.sections) && p.starts[i] < s.end; {
		first, size := i, 0
		for ; i < len(p.sections) && p.starts[i] < s.end && p.isSameStretch(first, i); i++ {
			size += min(p.starts[i+1], s.end) - max(p.starts[i], s.start)
		}
		if size > bestSize {
			best, bestSize = first, size
		}
	}
	place := p.sections[best].Place
	if place.Line > 0 {
		place.Line = p.lineAt(best, max(p.starts[best], s.start))
	}
	return place
}

// lineAt returns the number of the line at an offset in a section. It counts from the offset of the last call, so that
// all calls together are linear in the text.
func (p *places) lineAt(section, offset int) int {
	l := &p.line
	if l.section != section {
		l.section, l.offset, l.number = section, p.starts[section], p.sections[section].Place.Line
	}
	if offset >= l.offset {
		l.number += strings.Count(p.text[l.offset:offset], "\n")
	} else {
		l.number -= strings.Count(p.text[offset:l.offset], "\n")
	}
	l.offset = offset
	return l.number
}
