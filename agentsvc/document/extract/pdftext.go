package extract

import (
	"math"

	"github.com/ledongthuc/pdf"
)

// Distances between two pieces of text that mean a space, a new line or a new paragraph, in units of the font size.
const (
	spaceGap     = 0.2
	lineGap      = 0.5
	paragraphGap = 1.7
)

// matrix is a transformation of the plane, as PDF writes it: x' = a*x + c*y + e, y' = b*x + d*y + f.
type matrix struct{ a, b, c, d, e, f float64 }

var identity = matrix{a: 1, d: 1}

// then returns the transformation m followed by n.
func (m matrix) then(n matrix) matrix {
	return matrix{
		m.a*n.a + m.b*n.c, m.a*n.b + m.b*n.d,
		m.c*n.a + m.d*n.c, m.c*n.b + m.d*n.d,
		m.e*n.a + m.f*n.c + n.e, m.e*n.b + m.f*n.d + n.f,
	}
}

// textState are the parameters of text that operators set.
type textState struct {
	font                              *pdfFont
	size, charSpace, wordSpace, scale float64
	leading                           float64
}

// savedState is what the operator q saves.
type savedState struct {
	ctm  matrix
	text textState
}

// pdfText turns the drawing operators of a page into text. A PDF has no words or lines, only positions of characters:
// spaces and line breaks follow from the distances.
type pdfText struct {
	reader     *pdfReader
	ctm        matrix // from the present coordinates to those of the page
	state      textState
	saved      []savedState
	text, line matrix // of the present position and of the beginning of the line

	written    bool    // something was written on this page
	endX, endY float64 // where the last text ended, on the page
	space      bool    // the last character was a space
}

// interpret executes the operators of a page's or a form's content. resources are those that the content names.
func (t *pdfText) interpret(content, resources pdf.Value, depth int) {
	pdf.Interpret(content, func(stack *pdf.Stack, operator string) {
		arguments := make([]pdf.Value, stack.Len())
		for i := len(arguments) - 1; i >= 0; i-- {
			arguments[i] = stack.Pop()
		}
		t.execute(operator, arguments, resources, depth)
	})
}

// execute executes one operator. Operators that do not concern text are ignored, as are those with too few arguments.
func (t *pdfText) execute(operator string, arguments []pdf.Value, resources pdf.Value, depth int) {
	number := func(i int) float64 {
		if i >= len(arguments) {
			return 0
		}
		if v := arguments[i].Float64(); !math.IsNaN(v) && !math.IsInf(v, 0) {
			return v
		}
		return 0
	}
	argument := func(i int) pdf.Value {
		if i >= len(arguments) {
			return pdf.Value{}
		}
		return arguments[i]
	}
	switch operator {
	case "q":
		if len(t.saved) < maxSavedStates {
			t.saved = append(t.saved, savedState{t.ctm, t.state})
		}
	case "Q":
		if n := len(t.saved); n > 0 {
			t.ctm, t.state, t.saved = t.saved[n-1].ctm, t.saved[n-1].text, t.saved[:n-1]
		}
	case "cm":
		t.ctm = matrix{number(0), number(1), number(2), number(3), number(4), number(5)}.then(t.ctm)
	case "BT":
		t.text, t.line = identity, identity
	case "Tm":
		t.line = matrix{number(0), number(1), number(2), number(3), number(4), number(5)}
		t.text = t.line
	case "Td":
		t.moveLine(number(0), number(1))
	case "TD":
		t.state.leading = -number(1)
		t.moveLine(number(0), number(1))
	case "T*":
		t.moveLine(0, -t.state.leading)
	case "TL":
		t.state.leading = number(0)
	case "Tf":
		t.state.font, t.state.size = t.reader.font(resources, argument(0).Name()), number(1)
	case "Tc":
		t.state.charSpace = number(0)
	case "Tw":
		t.state.wordSpace = number(0)
	case "Tz":
		t.state.scale = number(0) / 100
	case "Tj":
		t.show(argument(0).RawString())
	case "'":
		t.moveLine(0, -t.state.leading)
		t.show(argument(0).RawString())
	case "\"":
		t.state.wordSpace, t.state.charSpace = number(0), number(1)
		t.moveLine(0, -t.state.leading)
		t.show(argument(2).RawString())
	case "TJ":
		t.showPieces(argument(0))
	case "Do":
		t.draw(resources.Key("XObject").Key(argument(0).Name()), resources, depth)
	case "BI", "EI":
		t.reader.hasImage = true
	}
}

// maxSavedStates bounds nested q operators.
const maxSavedStates = 1_000

// draw draws an image or a form. A form has its own coordinates, and its own resources or those of the page.
func (t *pdfText) draw(object, resources pdf.Value, depth int) {
	switch object.Key("Subtype").Name() {
	case "Image":
		t.reader.hasImage = true
	case "Form":
		if t.reader.forms++; depth >= maxFormDepth || t.reader.forms > maxForms {
			return
		}
		before, saved := savedState{t.ctm, t.state}, t.saved
		t.saved = nil
		if m := object.Key("Matrix"); m.Len() == 6 {
			v := func(i int) float64 { return m.Index(i).Float64() }
			t.ctm = matrix{v(0), v(1), v(2), v(3), v(4), v(5)}.then(t.ctm)
		}
		if own := object.Key("Resources"); !own.IsNull() {
			resources = own
		}
		t.interpret(object, resources, depth+1)
		t.ctm, t.state, t.saved = before.ctm, before.text, saved
	}
}

// moveLine begins a line at an offset from the beginning of the last one.
func (t *pdfText) moveLine(x, y float64) {
	t.line = matrix{1, 0, 0, 1, x, y}.then(t.line)
	t.text = t.line
}

// showPieces shows an array of strings, and of numbers that move the position backwards, in 1/1000 of the font size.
func (t *pdfText) showPieces(pieces pdf.Value) {
	for i := range pieces.Len() {
		piece := pieces.Index(i)
		if piece.Kind() == pdf.String {
			t.show(piece.RawString())
			continue
		}
		move := -piece.Float64() / 1000
		t.advance(move * t.state.size * t.state.scale)
		if i > 0 { // the move is exact even if the widths of the font are not known
			if move > spaceGap && t.written && !t.space {
				t.put(" ")
			}
			t.markEnd()
		}
	}
}

// markEnd notes the present position as the end of the text.
func (t *pdfText) markEnd() {
	at := t.text.then(t.ctm)
	t.endX, t.endY = at.e, at.f
}

// advance moves the position along the line.
func (t *pdfText) advance(x float64) {
	t.text = matrix{1, 0, 0, 1, x, 0}.then(t.text)
}

// show writes a string of the present font at the present position.
func (t *pdfText) show(raw string) {
	font := t.state.font
	if font == nil || raw == "" {
		return
	}
	t.separate(font)
	for raw != "" {
		var text string
		var code int
		before := len(raw)
		text, code, raw = font.next(raw)
		t.put(text)
		x := font.advance(code)*t.state.size + t.state.charSpace
		if before-len(raw) == 1 && code == ' ' {
			x += t.state.wordSpace
		}
		t.advance(x * t.state.scale)
	}
	t.markEnd()
}

// separate writes the space or line break between the text that was written last and the present position.
func (t *pdfText) separate(font *pdfFont) {
	at := t.text.then(t.ctm)
	size, scale := math.Abs(t.state.size)*math.Hypot(at.c, at.d), math.Hypot(at.a, at.b)
	if !t.written || size == 0 || scale == 0 {
		return
	}
	// The distance from the end of the last text, along the line of the new one and across it.
	dx, dy := at.e-t.endX, at.f-t.endY
	along, across := (dx*at.a+dy*at.b)/scale/size, math.Abs(dy*at.a-dx*at.b)/scale/size
	gap := spaceGap
	if !font.known {
		// The end of the last text is an estimate: any move along the line is a space, unless it goes far back.
		if gap = -2 * spaceGap; along == 0 {
			return
		}
	}
	switch {
	case across > paragraphGap:
		t.put("\n\n")
	case across > lineGap:
		t.put("\n")
	case (along > gap || along < -1) && !t.space:
		t.put(" ")
	}
}

// put writes text to the page's section.
func (t *pdfText) put(text string) {
	if text == "" {
		return
	}
	t.reader.b.write(text)
	t.written = true
	last := text[len(text)-1]
	t.space = last == ' ' || last == '\n'
}
