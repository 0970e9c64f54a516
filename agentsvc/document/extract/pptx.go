package extract

import (
	"strings"

	"stoa/agentsvc/document"
)

// readPPTX reads a presentation: a section for each slide, whose title is its heading. The speaker's notes follow the
// slide's text.
func readPPTX(b *builder, f file) error {
	const main = "ppt/presentation.xml"
	a, err := openArchive(f.data, b.limits)
	if err != nil {
		return err
	}
	relations, err := a.readRelations(main)
	if err != nil {
		return err
	}
	var order slideOrder
	if err := a.readXML(main, &order); err != nil {
		return err
	}
	if len(order) > b.limits.pages {
		return newProblem(TooLarge, "the presentation has more than %d slides: split it", b.limits.pages)
	}
	if title := (&titleReader{}); a.readOptionalXML("docProps/core.xml", title) == nil && title.title.String() != "PowerPoint Presentation" {
		b.setTitle(title.title.String())
	}
	for i, id := range order {
		if err := readSlide(b, a, i+1, relations.byID[id]); err != nil {
			return err
		}
	}
	return nil
}

// readSlide reads a slide and its notes.
func readSlide(b *builder, a *archive, number int, part string) error {
	s := newSlide()
	if err := a.readXML(part, s); err != nil {
		return err
	}
	relations, err := a.readRelations(part)
	if err != nil {
		return err
	}
	notes := newSlide()
	if part := relations.byKind["notesSlide"]; part != "" {
		if err := a.readOptionalXML(part, notes); err != nil {
			return err
		}
	}
	title := cleanLine(s.title.String(), maxHeading)
	b.setTitle(title)
	b.setPlace(document.Place{Page: number, Heading: title})
	if title != "" {
		b.write(title + "\n\n")
	}
	b.write(s.body.String())
	b.write(notes.body.String())
	return nil
}

// slideOrder has the ids of a presentation's slides in their order.
type slideOrder []string

func (o *slideOrder) startElement(name string, attributes attributes) {
	if name != "sldId" {
		return
	}
	for _, attribute := range attributes { // an element has a number as id, and one with a namespace for the relationship
		if attribute.Name.Local == "id" && attribute.Name.Space != "" {
			*o = append(*o, attribute.Value)
		}
	}
}

func (o *slideOrder) endElement(string) {}
func (o *slideOrder) addText(string)    {}

// slide reads a slide or a page of notes.
type slide struct {
	flow        flow
	title, body strings.Builder
	kind        string // of the present shape: title, body, sldNum ...
	skipped     int
	isText      bool
}

func newSlide() *slide {
	s := &slide{}
	s.flow.emit = func(text string, p paragraph) {
		switch {
		case s.kind == "title" || s.kind == "ctrTitle":
			s.title.WriteString(text + " ")
		case s.kind == "sldNum" || s.kind == "dt" || s.kind == "ftr" || s.kind == "hdr": // repeated on every slide
		default:
			s.body.WriteString(text + "\n")
		}
	}
	return s
}

func (s *slide) startElement(name string, attributes attributes) {
	s.isText = false
	if name == "Fallback" {
		s.skipped++
	}
	if s.skipped > 0 {
		return
	}
	switch name {
	case "sp", "graphicFrame":
		s.kind = ""
	case "ph":
		s.kind = attributes.get("type")
	case "p":
		s.flow.openParagraph("")
	case "t":
		s.isText = true
	case "br":
		s.flow.write("\n")
	case "tbl":
		s.flow.openTable()
	}
}

func (s *slide) endElement(name string) {
	s.isText = false
	if name == "Fallback" {
		s.skipped--
		return
	}
	if s.skipped > 0 {
		return
	}
	switch name {
	case "p":
		s.flow.closeParagraph()
	case "tc":
		s.flow.closeCell()
	case "tr":
		s.flow.closeRow()
	case "tbl":
		s.flow.closeTable()
	case "sp":
		if s.kind = ""; s.body.Len() > 0 && !strings.HasSuffix(s.body.String(), "\n\n") {
			s.body.WriteString("\n")
		}
	}
}

func (s *slide) addText(text string) {
	if s.isText {
		s.flow.write(text)
	}
}
