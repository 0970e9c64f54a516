package extract

import (
	"strings"

	"stoa/agentsvc/document"
)

// Bounds of titles and headings, in bytes.
const (
	maxTitle   = 300
	maxHeading = 200
)

// builder collects the sections of a document. Readers of formats write text at a place; a change of the place begins a
// new section. It panics with an [*agentsvc.Error] when a limit is exceeded, because readers write from callbacks that
// cannot return errors; readContent recovers it.
type builder struct {
	limits  limits
	content document.Content
	size    int // bytes of text, of finished sections and the present one
	place   document.Place
	text    strings.Builder // of the present section
}

// setPlace says where the following text stands.
func (b *builder) setPlace(p document.Place) {
	if p != b.place {
		b.flush()
		b.place = p
	}
}

// write appends text to the present section.
func (b *builder) write(s string) {
	if b.size += len(s); b.size > b.limits.text {
		panic(newProblem(TooLarge, "the file has more than %d MiB of text: split it", b.limits.text>>20))
	}
	b.text.WriteString(s)
}

// flush ends the present section. Every section ends with a line break, so that the joined text of all sections never
// joins two words. A section without text is left out.
func (b *builder) flush() {
	text := cleanText(b.text.String())
	b.text.Reset()
	if b.place.Line == 0 { // else the first line of the text is the line of the place
		text = strings.TrimLeft(text, "\n ")
	}
	if text = strings.TrimRight(text, "\n \t"); strings.TrimSpace(text) == "" {
		return
	}
	if len(b.content.Sections) >= b.limits.sections {
		panic(newProblem(TooLarge, "the file has more than %d sections: split it", b.limits.sections))
	}
	end := "\n"
	if b.place.Line == 0 {
		end = "\n\n" // pages and headings are paragraphs of their own
	}
	b.content.Sections = append(b.content.Sections, document.Section{Text: text + end, Place: b.place})
}

// setTitle sets the document's title unless it has one.
func (b *builder) setTitle(title string) {
	if b.content.Title == "" {
		b.content.Title = cleanLine(title, maxTitle)
	}
}

// outline is the path of headings above the present text.
type outline []headingLevel

// headingLevel is one heading of the path.
type headingLevel struct {
	level int // 1 = topmost
	text  string
}

// add enters a heading: it replaces those of its own and of deeper levels.
func (o *outline) add(level int, text string) {
	text = cleanLine(text, maxHeading)
	kept := *o
	for len(kept) > 0 && kept[len(kept)-1].level >= level {
		kept = kept[:len(kept)-1]
	}
	if text != "" {
		kept = append(kept, headingLevel{level, text})
	}
	*o = kept
}

// path returns the headings as [document.Place] has them.
func (o outline) path() string {
	texts := make([]string, len(o))
	for i, h := range o {
		texts[i] = h.text
	}
	return strings.Join(texts, " > ")
}
