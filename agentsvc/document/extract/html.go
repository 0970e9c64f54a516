package extract

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"

	"stoa/agentsvc/document"
)

// skippedElements are the elements whose content is no text of the page.
var skippedElements = []atom.Atom{
	atom.Script, atom.Style, atom.Noscript, atom.Template, atom.Svg, atom.Math, atom.Iframe, atom.Object, atom.Canvas, atom.Audio, atom.Video, atom.Select,
}

// blockElements are the elements before and after which a line ends; those of paragraphElements also have an empty
// line.
var (
	blockElements = []atom.Atom{
		atom.Address, atom.Article, atom.Aside, atom.Br, atom.Dd, atom.Details, atom.Div, atom.Dt, atom.Fieldset, atom.Figcaption, atom.Figure, atom.Footer, atom.Form,
		atom.Header, atom.Hr, atom.Li, atom.Main, atom.Nav, atom.Section, atom.Summary, atom.Tr,
	}
	paragraphElements = []atom.Atom{atom.P, atom.Blockquote, atom.Dl, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Ol, atom.Pre, atom.Table, atom.Ul}
)

// htmlText turns a page's elements into text. It works on the stream of tags and builds no tree, so that neither depth
// nor wrong nesting costs anything.
type htmlText struct {
	b        *builder
	headings outline
	skipped  atom.Atom // the element that is being skipped, 0 = none
	nested   int       // how many elements of that name are open
	level    int       // of the heading that is being read, 0 = none
	heading  strings.Builder
	isTitle  bool
	pre      bool
	breaks   int  // line breaks that are due before the next text
	space    bool // a space is due
	marked   bool // the mark of a list's item or of a cell was written last, after which no space is due
	cells    int  // cells of the present table row so far
}

// readHTML reads a web page: a section for each heading.
func readHTML(b *builder, f file) error {
	declared := ""
	if f.charset != "" {
		declared = typeHTML + "; charset=" + f.charset
	}
	_, name, certain := charset.DetermineEncoding(f.data[:min(len(f.data), 1024)], declared)
	if !certain {
		name = ""
	}
	source, err := decodeText(f.data, name)
	if err != nil {
		return err
	}
	h := htmlText{b: b}
	z := html.NewTokenizer(bytes.NewReader([]byte(source)))
	for {
		switch kind := z.Next(); kind {
		case html.ErrorToken:
			if err := z.Err(); !errors.Is(err, io.EOF) {
				return err
			}
			h.endHeading()
			return nil
		case html.TextToken:
			h.addText(string(z.Text()))
		case html.StartTagToken, html.SelfClosingTagToken, html.EndTagToken:
			tag, _ := z.TagName()
			h.addTag(atom.Lookup(tag), kind)
		}
	}
}

// addTag handles a tag. Elements of other names have no effect on the text.
func (h *htmlText) addTag(a atom.Atom, kind html.TokenType) {
	start := kind == html.StartTagToken
	switch {
	case h.skipped != 0:
		if a == h.skipped && kind != html.SelfClosingTagToken {
			if start {
				h.nested++
			} else if h.nested--; h.nested == 0 {
				h.skipped = 0
			}
		}
		return
	case slices.Contains(skippedElements, a):
		if start {
			h.skipped, h.nested = a, 1
		}
		return
	case a == atom.Title:
		h.isTitle = start
		return
	}
	switch a {
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		h.endHeading()
		if start {
			h.level = int(a.String()[1] - '0')
		}
	case atom.Pre:
		h.pre = start
	case atom.Tr:
		h.cells = 0
	case atom.Td, atom.Th:
		if start {
			if h.cells > 0 {
				h.put(" | ")
			}
			h.cells++
			h.space, h.marked = false, true
		}
	}
	switch {
	case slices.Contains(paragraphElements, a):
		h.breaks = max(h.breaks, 2)
	case slices.Contains(blockElements, a):
		h.breaks = max(h.breaks, 1)
	}
	if a == atom.Li && start {
		h.put("- ")
		h.marked = true
	}
}

// addText adds the text between two tags.
func (h *htmlText) addText(text string) {
	switch {
	case h.skipped != 0:
	case h.isTitle:
		h.b.setTitle(text)
	case h.pre && h.level == 0:
		h.put(normalizeBreaks(text))
	default:
		words := strings.Fields(text)
		if len(words) == 0 {
			h.space = !h.marked
			return
		}
		if !h.marked && (h.space || strings.TrimLeft(text, " \t\r\n\f") != text) {
			h.putSpace()
		}
		h.put(strings.Join(words, " "))
		h.marked = false
		h.space = strings.TrimRight(text, " \t\r\n\f") != text
	}
}

// putSpace writes a space unless a line break comes before the next text.
func (h *htmlText) putSpace() {
	if h.breaks == 0 {
		h.put(" ")
	}
	h.space = false
}

// put writes text after the line breaks that are due.
func (h *htmlText) put(text string) {
	if h.level > 0 {
		if h.breaks > 0 && h.heading.Len() > 0 {
			h.heading.WriteByte(' ')
		}
		h.breaks = 0
		if h.heading.Len() < 8*maxHeading {
			h.heading.WriteString(text)
		}
		return
	}
	if h.b.text.Len() > 0 {
		h.b.write("\n\n"[:h.breaks])
	}
	h.breaks = 0
	h.b.write(text)
}

// endHeading enters the heading that was read, if any, and begins its section with it.
func (h *htmlText) endHeading() {
	if h.level == 0 {
		return
	}
	level, text := h.level, h.heading.String()
	h.level = 0
	h.heading.Reset()
	h.headings.add(level, text)
	if level == 1 {
		h.b.setTitle(text)
	}
	h.b.setPlace(document.Place{Heading: h.headings.path()})
	h.breaks = 0
	h.put(text)
	h.breaks = 2
}
