package extract

import (
	"strconv"
	"strings"

	"stoa/agentsvc/document"
)

// maxHeadingLevel is the deepest level of a heading in an Office file.
const maxHeadingLevel = 9

// readDOCX reads a text document of Office: a section for each heading. Footnotes and endnotes follow the text. Pages
// are not known: the file does not contain them, the program that shows it makes them.
func readDOCX(b *builder, f file) error {
	a, err := openArchive(f.data, b.limits)
	if err != nil {
		return err
	}
	styles := docxStyles{levels: map[string]int{}, bases: map[string]string{}}
	if err := a.readOptionalXML("word/styles.xml", &styles); err != nil {
		return err
	}
	a.readTitle(b, "docProps/core.xml")
	d := &docx{styles: &styles}
	var headings outline
	d.flow.emit = func(text string, p paragraph) {
		if p.level > 0 {
			headings.add(p.level, text)
			b.setPlace(document.Place{Heading: headings.path()})
		} else if strings.EqualFold(p.style, "title") {
			b.setTitle(text)
		}
		b.writeParagraph(text, p)
	}
	if err := a.readXML("word/document.xml", d); err != nil {
		return err
	}
	b.setPlace(document.Place{})
	for _, part := range []string{"word/footnotes.xml", "word/endnotes.xml"} {
		d.flow = flow{emit: b.writeParagraph}
		if err := a.readOptionalXML(part, d); err != nil {
			return err
		}
	}
	return nil
}

// docx reads the parts of a document that have text.
type docx struct {
	styles  *docxStyles
	flow    flow
	skipped int  // open elements whose text is not part of the document
	isText  bool // within an element that has text
}

func (d *docx) startElement(name string, attributes attributes) {
	d.isText = false
	if isSkippedOfDOCX(name) || d.skipped > 0 {
		if isSkippedOfDOCX(name) {
			d.skipped++
		}
		return
	}
	p := d.flow.current()
	switch name {
	case "p":
		d.flow.openParagraph("")
	case "t":
		d.isText = true
	case "tab":
		d.flow.write("\t")
	case "br", "cr":
		d.flow.write("\n")
	case "noBreakHyphen":
		d.flow.write("-")
	case "tbl":
		d.flow.openTable()
	case "pStyle":
		if p != nil {
			p.style = attributes.get("val")
			p.level = max(p.level, d.styles.level(p.style))
		}
	case "outlineLvl":
		if p != nil {
			p.level = parseOutlineLevel(attributes.get("val"))
		}
	case "numPr":
		if p != nil {
			p.item = true
		}
	}
}

func (d *docx) endElement(name string) {
	d.isText = false
	if isSkippedOfDOCX(name) {
		d.skipped--
		return
	}
	if d.skipped > 0 {
		return
	}
	switch name {
	case "p":
		d.flow.closeParagraph()
	case "tc":
		d.flow.closeCell()
	case "tr":
		d.flow.closeRow()
	case "tbl":
		d.flow.closeTable()
	}
}

func (d *docx) addText(text string) {
	if d.isText {
		d.flow.write(text)
	}
}

// isSkippedOfDOCX reports whether an element's text is not part of the document: the older form of a drawing, which
// repeats the newer one's text, the place that a text was moved away from, and tab stops, whose elements have the name
// of tabs.
func isSkippedOfDOCX(name string) bool {
	return name == "Fallback" || name == "moveFrom" || name == "tabs"
}

// docxStyles are the levels of headings that styles of paragraphs give.
type docxStyles struct {
	levels map[string]int    // by style
	bases  map[string]string // the style that a style is derived from
	style  string            // that is being read
}

// level returns the level of a style, of one that it is derived from, or 0.
func (s *docxStyles) level(style string) int {
	for range maxHeadingLevel { // a bound for styles that are derived from each other
		if level, ok := s.levels[style]; ok {
			return level
		}
		style = s.bases[style]
	}
	return 0
}

func (s *docxStyles) startElement(name string, attributes attributes) {
	switch name {
	case "style":
		s.style = attributes.get("styleId")
	case "basedOn":
		s.bases[s.style] = attributes.get("val")
	case "name":
		// Names are the same in every language, ids are not.
		if number, ok := strings.CutPrefix(strings.ToLower(attributes.get("val")), "heading "); ok && s.style != "" {
			if level, err := strconv.Atoi(number); err == nil && level >= 1 && level <= maxHeadingLevel {
				s.levels[s.style] = level
			}
		}
	case "outlineLvl":
		if level := parseOutlineLevel(attributes.get("val")); level > 0 && s.style != "" {
			s.levels[s.style] = level
		}
	}
}

func (s *docxStyles) endElement(name string) {
	if name == "style" {
		s.style = ""
	}
}

func (s *docxStyles) addText(string) {}

// parseOutlineLevel returns the level of a heading from its level in the outline, which begins at 0; text has 9.
func parseOutlineLevel(text string) int {
	level, err := strconv.Atoi(text)
	if err != nil || level < 0 || level >= maxHeadingLevel {
		return 0
	}
	return level + 1
}
