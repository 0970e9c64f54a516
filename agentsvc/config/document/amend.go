package document

import (
	"bytes"
	"reflect"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Amend returns src with the values of want, which has the form that [Decode] gives src. It replaces the scalars that
// differ, by JSON in their places, and keeps the rest of the text: order, comments, quotes. comment returns what stands
// in place of a comment, which begins with #. Where a difference is not one of scalars, or a scalar is not found in the
// text, the result is [EncodeJSON] of want in the order of src and of more: it is complete then, but without the comments.
func Amend(src []byte, want map[string]any, comment func(text string) string, more ...[]byte) []byte {
	edits, ok := findEdits(src, want, comment)
	if ok && len(edits) == 0 {
		return src
	}
	if ok {
		amended := applyEdits(src, edits)
		// The text is read again: a value that was not replaced in all of its places must not go unnoticed.
		if got, err := Decode(amended); err == nil && reflect.DeepEqual(got, want) {
			return amended
		}
	}
	return EncodeJSON(want, append([][]byte{src}, more...)...)
}

// textEdit replaces the bytes from start to end of a text.
type textEdit struct {
	start, end int
	text       []byte
}

// applyEdits returns src with the edits, which are in the order of the text and do not overlap.
func applyEdits(src []byte, edits []textEdit) []byte {
	var out []byte
	at := 0
	for _, e := range edits {
		out = append(append(out, src[at:e.start]...), e.text...)
		at = e.end
	}
	return append(out, src[at:]...)
}

// position is where a node begins in the text, as the YAML library counts: lines and characters from 1.
type position struct{ line, column int }

// findEdits returns the edits of [Amend], in the order of the text. It reports false where Amend cannot keep the text.
func findEdits(src []byte, want map[string]any, comment func(string) string) ([]textEdit, bool) {
	c, found, ok := compareText(src, want)
	if found && !ok {
		return nil, false
	}
	// Read has expanded its tree. A tree takes many times the size of its text: that of the comparison is garbage by now.
	raw, err := parseYAML(src)
	if err != nil || raw == nil || !found {
		return nil, err == nil && len(want) == 0
	}
	start := len(src) - len(bytes.TrimPrefix(src, byteOrderMark)) // the library does not count it
	f := editFinder{cursor: cursor{src: src, offset: start, position: position{1, 1}}, comparison: c, comment: comment}
	if !f.findNode(raw, false) {
		return nil, false
	}
	f.addComments(len(src))
	return f.edits, true
}

// byteOrderMark is the mark with which some editors begin a text in UTF-8.
var byteOrderMark = []byte("\uFEFF")

// compareText compares the document in src with want. found reports that src has a document, ok that it can get the values
// of want (see addNode).
func compareText(src []byte, want map[string]any) (c comparison, found, ok bool) {
	doc := Read(src, nil, "")
	if doc.Root == nil {
		return c, false, false
	}
	c = comparison{seen: map[position]bool{}, differing: map[position]any{}}
	return c, true, c.addNode(doc, doc.Root, want)
}

// comparison is the outcome of comparing the scalars of a document with wanted values.
type comparison struct {
	// seen are the positions of all scalars that the document consists of. Others stand in its text only, such as those
	// of a merge key that the mapping overrides, and may be anything.
	seen map[position]bool
	// differing are the wanted values of the scalars that differ.
	differing map[position]any
}

// addNode compares n, a node of doc, with want. It reports false if keys or lists differ, or if one scalar would get two values because an
// alias repeats it.
func (c *comparison) addNode(doc *Document, n *yaml.Node, want any) bool {
	switch n.Kind {
	case yaml.MappingNode:
		m, ok := want.(map[string]any)
		if !ok || len(m) != len(n.Content)/2 {
			return false
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			x, has := m[n.Content[i].Value]
			if !has || !c.addNode(doc, n.Content[i+1], x) {
				return false
			}
		}
		return true
	case yaml.SequenceNode:
		list, ok := want.([]any)
		if !ok || len(list) != len(n.Content) {
			return false
		}
		for i, item := range n.Content {
			if !c.addNode(doc, item, list[i]) {
				return false
			}
		}
		return true
	}
	at := position{n.Line, n.Column}
	c.seen[at] = true
	x, ok := doc.decodePlainScalar(Location{Value: n})
	if !ok || reflect.DeepEqual(x, want) {
		return ok
	}
	other, twice := c.differing[at]
	c.differing[at] = want
	return !twice || reflect.DeepEqual(other, want)
}

// editFinder walks through the nodes of a text in their order.
type editFinder struct {
	cursor
	comparison
	comment func(text string) string
	edits   []textEdit
}

// findNode adds the edits of n and of the comments before it; isKey says that n is the key of a mapping. It reports false if
// n is not found in the text, or is a value that was not compared.
func (f *editFinder) findNode(n *yaml.Node, isKey bool) bool {
	switch {
	case n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode:
		for i, child := range n.Content {
			if !f.findNode(child, n.Kind == yaml.MappingNode && i%2 == 0) {
				return false
			}
		}
		return true
	case n.Kind == yaml.ScalarNode && n.Value == "" && n.Style&^yaml.TaggedStyle == 0:
		return true // nothing stands there
	}
	from, at := f.offset, position{n.Line, n.Column}
	if n.Kind == yaml.ScalarNode && !isKey && !f.seen[at] || !f.moveTo(at) {
		return false
	}
	s, ok := findScalar(f.src, f.offset, n)
	if !ok {
		return false
	}
	f.addCommentsBetween(from, s.header)
	if value, differs := f.differing[at]; differs && !isKey {
		f.edits = append(f.edits, textEdit{s.start, s.end, encodeValue(value)})
	}
	return f.moveToOffset(s.end)
}

// addComments adds the edits of the comments from the cursor to end.
func (f *editFinder) addComments(end int) { f.addCommentsBetween(f.offset, end) }

// addCommentsBetween adds the edits of the comments between two offsets, where no scalar stands.
func (f *editFinder) addCommentsBetween(start, end int) {
	for i := start; i < end; i++ {
		if f.src[i] != '#' || i > 0 && !isSpace(f.src[i-1]) {
			continue
		}
		line := f.src[i:]
		if n := bytes.IndexAny(line, "\r\n"); n >= 0 {
			line = line[:n]
		}
		if text := f.comment(string(line)); text != string(line) {
			f.edits = append(f.edits, textEdit{i, i + len(line), []byte(text)})
		}
		i += len(line)
	}
}

// cursor is a place in a text that moves forward only, so that finding all nodes of a long line takes linear time.
type cursor struct {
	src    []byte
	offset int
	position
}

// moveTo moves the cursor to a position. It reports false if the text has no such position ahead.
func (c *cursor) moveTo(at position) bool {
	for c.position != at {
		if c.offset >= len(c.src) || c.line > at.line {
			return false
		}
		c.step()
	}
	return true
}

// moveToOffset moves the cursor to an offset and reports whether a character begins there.
func (c *cursor) moveToOffset(offset int) bool {
	for c.offset < offset {
		c.step()
	}
	return c.offset == offset
}

// step moves the cursor behind a character, or behind a line break as YAML 1.1 knows them.
func (c *cursor) step() {
	r, size := utf8.DecodeRune(c.src[c.offset:])
	if r == '\r' && bytes.HasPrefix(c.src[c.offset:], []byte("\r\n")) {
		size = 2
	}
	c.offset += size
	switch r {
	case '\r', '\n', '\u0085', '\u2028', '\u2029':
		c.line, c.column = c.line+1, 1
	default:
		c.column++
	}
}

// scalarSpan is where a scalar stands in a text, without its anchor and tag. header is start, or the end of the header of
// a block scalar, where a comment can stand.
type scalarSpan struct{ start, header, end int }

// findScalar returns the span of the scalar or alias n that begins, with its anchor and tag, at the offset at.
func findScalar(src []byte, at int, n *yaml.Node) (s scalarSpan, ok bool) {
	for at < len(src) && (src[at] == '&' || src[at] == '!') && n.Kind == yaml.ScalarNode {
		for at < len(src) && !isSpace(src[at]) {
			at++
		}
		for at < len(src) && isSpace(src[at]) {
			at++
		}
	}
	if at >= len(src) {
		return s, false
	}
	s = scalarSpan{at, at, at}
	switch style := n.Style; {
	case n.Kind == yaml.AliasNode:
		s.end += 1 + len(n.Value)
		return s, s.end <= len(src) && string(src[at:s.end]) == "*"+n.Value
	case style&yaml.DoubleQuotedStyle != 0:
		s.end, ok = findQuote(src, at, '"')
	case style&yaml.SingleQuotedStyle != 0:
		s.end, ok = findQuote(src, at, '\'')
	case style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		line := bytes.IndexAny(src[at:], "\r\n")
		if line < 0 {
			return s, n.Value == ""
		}
		s.header = at + line
		s.end, ok = matchText(src, s.header, n.Value)
	default:
		s.end, ok = matchText(src, at, n.Value)
	}
	return s, ok
}

// findQuote returns the offset behind the quoted text that begins at the offset at.
func findQuote(src []byte, at int, quote byte) (end int, ok bool) {
	if src[at] != quote {
		return at, false
	}
	for i := at + 1; i < len(src); i++ {
		switch {
		case src[i] == '\\' && quote == '"':
			i++
		case src[i] == quote && quote == '\'' && i+1 < len(src) && src[i+1] == quote:
			i++
		case src[i] == quote:
			return i + 1, true
		}
	}
	return at, false
}

// matchText returns the offset behind value, which stands from the offset at on without escapes. Spaces and line breaks
// are not compared, since folding changes them.
func matchText(src []byte, at int, value string) (end int, ok bool) {
	end = at
	for i := range len(value) {
		if isSpace(value[i]) {
			continue
		}
		for at < len(src) && isSpace(src[at]) {
			at++
		}
		if at >= len(src) || src[at] != value[i] {
			return end, false
		}
		at++
		end = at
	}
	return end, true
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
