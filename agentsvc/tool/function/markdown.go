package function

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// Bounds of nesting. Elements that are nested deeper are written without their marks.
const (
	maxBlocks = 16
	maxMarks  = 16
)

// htmlSpace is the white space of HTML.
const htmlSpace = " \t\n\r\f"

// markdownWriter writes Markdown in one pass: written text is never read or changed again, so the cost is linear
// (docs/decisions/webfetch-markdown.md).
// Marks, spaces and line ends are due, and written only before the text that follows them, so that elements without
// text leave nothing. Blocks are elements with lines of their own (paragraphs, lists, quotes), marks are elements
// within a line (bold, links); both are stacks, closed in any order that a page may use.
type markdownWriter struct {
	out bytes.Buffer
	// limit is the size in bytes at which writing stops.
	limit int
	// blocks are the open block elements, the outermost first; marks the open inline elements.
	blocks []markdownBlock
	marks  []markdownMark
	// breaksDue is the number of line ends before the next text.
	breaksDue int
	// hardBreak reports that one of them is a line break within a paragraph.
	hardBreak bool
	spaceDue  bool
	// code is the open code element, table the open table; nil: none.
	code  *markdownCode
	table *markdownTable
}

// markdownBlock is an open element whose lines begin with a prefix, e.g. "> ".
type markdownBlock struct {
	element string
	// first is the prefix of the first line, next that of the others.
	first, next string
	// started reports that the first line was written.
	started bool
	// number is that of the next item of an ordered list.
	number int
}

// markdownMark is an open element with marks around its text.
type markdownMark struct {
	element, begin, end string
	// written reports that begin was written.
	written bool
}

// markdownCode is the content of an open code element. It is written at the end, because the fence depends on it.
type markdownCode struct {
	element, language string
	text              bytes.Buffer
}

// isFull reports whether the limit is reached.
func (m *markdownWriter) isFull() bool { return m.out.Len() > m.limit }

// textEscaper escapes text that Markdown would read as HTML.
var textEscaper = strings.NewReplacer("<", "&lt;", ">", "&gt;")

// escapeText returns text escaped as HTML and, in a table, as a cell.
func (m *markdownWriter) escapeText(text string) string {
	text = textEscaper.Replace(text)
	if m.inCell() {
		text = strings.ReplaceAll(text, "|", `\|`)
	}
	return text
}

// writeText writes text of the page, with any white space as one space.
func (m *markdownWriter) writeText(text string) {
	if m.code != nil {
		// Code is buffered until its end, so it is bounded here.
		if m.code.text.Len() <= m.limit {
			m.code.text.WriteString(text)
		}
		return
	}
	for text != "" && !m.isFull() {
		word := strings.TrimLeft(text, htmlSpace)
		if len(word) < len(text) {
			m.spaceDue = true
		}
		size := strings.IndexAny(word, htmlSpace)
		if size < 0 {
			size = len(word)
		}
		if size > 0 {
			m.writeInline(m.escapeText(word[:size]))
		}
		text = word[size:]
	}
}

// writeInline writes text unchanged, after everything that is due before it.
func (m *markdownWriter) writeInline(text string) {
	if m.code != nil {
		return
	}
	m.writeLineStart()
	if m.spaceDue && !bytes.HasSuffix(m.out.Bytes(), []byte(" ")) {
		m.out.WriteByte(' ')
	}
	m.spaceDue = false
	// Marks are written once text follows, from the outermost one.
	for i := range m.marks {
		if k := &m.marks[i]; !k.written {
			m.out.WriteString(k.begin)
			k.written = true
		}
	}
	m.out.WriteString(text)
}

// writeLineStart writes the due line ends and the prefixes of the open blocks.
func (m *markdownWriter) writeLineStart() {
	if m.breaksDue == 0 && m.out.Len() > 0 {
		return
	}
	if m.out.Len() > 0 {
		// Two spaces before a line end are Markdown's line break within a paragraph.
		if m.hardBreak && m.breaksDue == 1 {
			m.out.WriteString("  ")
		}
		for n := range m.breaksDue {
			m.out.WriteByte('\n')
			if n < m.breaksDue-1 {
				m.out.WriteString(m.blankLine())
			}
		}
	}
	for i := range m.blocks {
		b := &m.blocks[i]
		if b.started {
			m.out.WriteString(b.next)
			continue
		}
		m.out.WriteString(b.first)
		b.started = true
	}
	m.breaksDue, m.hardBreak, m.spaceDue = 0, false, false
}

// blankLine returns a line without text between two blocks: the prefixes of the open ones.
func (m *markdownWriter) blankLine() string {
	var line strings.Builder
	for _, b := range m.blocks {
		if b.started {
			line.WriteString(b.next)
		}
	}
	return strings.TrimRight(line.String(), " ")
}

// beginParagraph makes the next text begin on a new line, after an empty one if breaks is 2. In a table cell it is a
// space, and within a pre it has no effect. It ends inline code, which cannot span paragraphs.
func (m *markdownWriter) beginParagraph(breaks int) {
	if m.code != nil {
		// Within preformatted code, paragraphs have no meaning.
		if m.code.element == "pre" {
			return
		}
		m.endCode()
	}
	if m.inCell() {
		m.spaceDue = true
		return
	}
	m.suspendMarks()
	m.breaksDue, m.spaceDue, m.hardBreak = max(m.breaksDue, breaks), false, false
}

// breakLine makes the next text begin on a new line of the same paragraph.
func (m *markdownWriter) breakLine() {
	switch {
	case m.code != nil:
		m.writeText("\n")
	case m.inCell():
		m.spaceDue = true
	default:
		m.hardBreak = m.breaksDue == 0
		m.breaksDue, m.spaceDue = min(m.breaksDue+1, 2), false
	}
}

// beginMark puts begin before the next text, and end after the last text before endMark.
func (m *markdownWriter) beginMark(element, begin, end string) {
	// Marks have no meaning within code.
	if m.code == nil && len(m.marks) < maxMarks {
		m.marks = append(m.marks, markdownMark{element: element, begin: begin, end: end})
	}
}

// endMark ends the innermost open mark of the element. Marks that were opened within it stay open.
func (m *markdownWriter) endMark(element string) {
	for i, k := range slices.Backward(m.marks) {
		if k.element != element {
			continue
		}
		if k.written {
			m.out.WriteString(k.end)
		}
		m.marks = slices.Delete(m.marks, i, i+1)
		return
	}
}

// suspendMarks ends the marks until the next text: marks of Markdown cannot span paragraphs.
func (m *markdownWriter) suspendMarks() {
	for i := range slices.Backward(m.marks) {
		if k := &m.marks[i]; k.written {
			m.out.WriteString(k.end)
			k.written = false
		}
	}
}

// beginBlock opens an element whose lines have the prefixes first and next.
func (m *markdownWriter) beginBlock(element, first, next string) {
	m.beginParagraph(2)
	m.pushBlock(markdownBlock{element: element, first: first, next: next})
}

// pushBlock opens a block, unless it is nested too deep.
func (m *markdownWriter) pushBlock(b markdownBlock) {
	if m.code == nil && !m.inCell() && len(m.blocks) < maxBlocks {
		m.blocks = append(m.blocks, b)
	}
}

// endBlock closes the innermost block of the element and all blocks in it.
func (m *markdownWriter) endBlock(element string, breaks int) {
	if m.code != nil && m.code.element == "pre" {
		return
	}
	for i, b := range slices.Backward(m.blocks) {
		if b.element == element {
			// Everything that was opened within the element and not closed ends with it.
			m.blocks = m.blocks[:i]
			break
		}
	}
	if m.inList() {
		breaks = 1
	}
	m.beginParagraph(breaks)
}

// inList reports whether a list item is open.
func (m *markdownWriter) inList() bool {
	return slices.ContainsFunc(m.blocks, func(b markdownBlock) bool { return b.element == "li" })
}

// beginList opens a list. The items of an ol are numbered from start on.
func (m *markdownWriter) beginList(element, start string) {
	breaks := 2
	if m.inList() {
		breaks = 1
	}
	m.beginParagraph(breaks)
	number, err := strconv.Atoi(start)
	if err != nil {
		number = 1
	}
	m.pushBlock(markdownBlock{element: element, number: number})
}

// beginItem opens an item of the innermost list and closes everything within that list. Its lines are indented by the
// length of the marker.
func (m *markdownWriter) beginItem() {
	// An item outside a list is written like that of an unordered one.
	marker := "- "
	for i, b := range slices.Backward(m.blocks) {
		if b.element == "ul" || b.element == "ol" {
			if b.element == "ol" {
				marker = strconv.Itoa(b.number) + ". "
				m.blocks[i].number++
			}
			m.blocks = m.blocks[:i+1]
			break
		}
	}
	m.beginParagraph(1)
	m.pushBlock(markdownBlock{element: "li", first: marker, next: strings.Repeat(" ", len(marker))})
}

// beginCode opens a code element; a pre is a block.
func (m *markdownWriter) beginCode(element, language string) {
	if m.code != nil {
		if m.code.language == "" {
			m.code.language = language
		}
		return
	}
	if element == "pre" {
		m.beginParagraph(2)
	}
	m.code = &markdownCode{element: element, language: language}
}

// endCode writes the open code element: in one line, or as a fenced block for a pre outside of a table. The fence is
// longer than any run of backticks in the code, so that the code cannot end it.
func (m *markdownWriter) endCode() {
	code := m.code
	m.code = nil
	if code == nil || len(bytes.TrimSpace(code.text.Bytes())) == 0 {
		return
	}
	text := code.text.String()
	if code.element != "pre" || m.inCell() {
		// Inline code is one line.
		words := strings.Join(strings.Fields(text), " ")
		fence := strings.Repeat("`", longestRun(words, '`')+1)
		// Spaces keep backticks at the ends of the code apart from the fence.
		if len(fence) > 1 {
			words = " " + words + " "
		}
		// White space at the ends of the code belongs outside of the fence.
		m.spaceDue = m.spaceDue || strings.Trim(text[:1], htmlSpace) == ""
		m.writeInline(fence + words + fence)
		m.spaceDue = strings.Trim(text[len(text)-1:], htmlSpace) == ""
		return
	}
	fence := strings.Repeat("`", max(longestRun(text, '`')+1, 3))
	m.writeInline(fence + code.language)
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		if m.isFull() {
			break
		}
		m.writeLine(line)
	}
	m.writeLine(fence)
	m.beginParagraph(2)
}

// writeLine writes text on a line of its own.
func (m *markdownWriter) writeLine(text string) {
	m.breaksDue = 1
	m.writeLineStart()
	m.out.WriteString(text)
}

// longestRun returns the length of the longest run of c in text.
func longestRun(text string, c byte) int {
	longest, run := 0, 0
	for i := range len(text) {
		if text[i] != c {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}
