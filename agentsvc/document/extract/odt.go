package extract

import (
	"strconv"
	"strings"

	"stoa/agentsvc/document"
)

// maxRepeatedSpaces bounds the spaces that one element of an OpenDocument stands for.
const maxRepeatedSpaces = 16

// readODT reads a text of OpenDocument: a section for each heading.
func readODT(b *builder, f file) error {
	a, err := openArchive(f.data, b.limits)
	if err != nil {
		return err
	}
	var manifest odtManifest
	if err := a.readOptionalXML("META-INF/manifest.xml", &manifest); err != nil {
		return err
	}
	if manifest.encrypted {
		return newProblem(Encrypted, "the file is encrypted: upload a copy without a password")
	}
	a.readTitle(b, "meta.xml")
	o := &odt{}
	var headings outline
	o.flow.emit = func(text string, p paragraph) {
		if p.level > 0 {
			headings.add(p.level, text)
			b.setPlace(document.Place{Heading: headings.path()})
		} else if p.style == "Title" {
			b.setTitle(text)
		}
		b.writeParagraph(text, p)
	}
	return a.readXML("content.xml", o)
}

// odtManifest finds out whether a file is encrypted.
type odtManifest struct{ encrypted bool }

func (m *odtManifest) startElement(name string, _ attributes) {
	m.encrypted = m.encrypted || name == "encryption-data" || name == "keyinfo"
}
func (m *odtManifest) endElement(string) {}
func (m *odtManifest) addText(string)    {}

// odt reads the content of a text.
type odt struct {
	flow    flow
	skipped int // open elements whose text is not part of the document
	items   int // open items of lists
}

// isSkippedOfODT reports whether an element's text is not part of the document: comments, deleted text, and the
// descriptions of indexes.
func isSkippedOfODT(name string) bool {
	return name == "annotation" || name == "tracked-changes" || name == "table-of-content-source" || name == "note-citation"
}

func (o *odt) startElement(name string, attributes attributes) {
	if isSkippedOfODT(name) {
		o.skipped++
	}
	if o.skipped > 0 {
		return
	}
	switch name {
	case "h":
		o.flow.openParagraph("")
		level, err := strconv.Atoi(attributes.get("outline-level"))
		if err != nil || level < 1 {
			level = 1
		}
		o.flow.current().level = min(level, maxHeadingLevel)
	case "p":
		o.flow.openParagraph(attributes.get("style-name"))
		o.flow.current().item = o.items > 0
	case "list-item":
		o.items++
	case "s":
		count, err := strconv.Atoi(attributes.get("c"))
		if err != nil {
			count = 1
		}
		o.flow.write(strings.Repeat(" ", min(max(count, 1), maxRepeatedSpaces)))
	case "tab":
		o.flow.write("\t")
	case "line-break":
		o.flow.write("\n")
	case "table":
		o.flow.openTable()
	}
}

func (o *odt) endElement(name string) {
	if isSkippedOfODT(name) {
		o.skipped--
		return
	}
	if o.skipped > 0 {
		return
	}
	switch name {
	case "h", "p":
		o.flow.closeParagraph()
	case "list-item":
		o.items--
	case "table-cell":
		o.flow.closeCell()
	case "table-row":
		o.flow.closeRow()
	case "table":
		o.flow.closeTable()
	}
}

// addText adds text, in which any white space is one space: line breaks and runs of spaces are elements.
func (o *odt) addText(text string) {
	if o.skipped > 0 || o.flow.current() == nil {
		return
	}
	words := strings.Join(strings.Fields(text), " ")
	if words == "" {
		if text != "" {
			o.flow.write(" ")
		}
		return
	}
	if strings.TrimLeft(text, " \t\r\n") != text {
		words = " " + words
	}
	if strings.TrimRight(text, " \t\r\n") != text {
		words += " "
	}
	o.flow.write(words)
}
