package extract

import "strings"

// flow turns paragraphs and tables of a text document into text: paragraphs with an empty line between them, items of
// lists with a dash, rows of tables as one line. Paragraphs may be nested, as in a text box within one; the inner one
// comes first.
type flow struct {
	// emit gets each paragraph outside tables, and each row.
	emit       func(text string, p paragraph)
	paragraphs []paragraph
	tables     []tableRow // the open tables, the innermost last
}

// paragraph is an open paragraph.
type paragraph struct {
	text  strings.Builder
	style string
	level int  // of a heading, 0 = none
	item  bool // of a list
	row   bool // a row of a table
}

// tableRow is the present row of a table.
type tableRow struct {
	cells []string
	cell  strings.Builder
}

func (f *flow) openParagraph(style string) {
	f.paragraphs = append(f.paragraphs, paragraph{style: style})
}

// current returns the innermost open paragraph, nil if there is none. It is valid until the next change of f.
func (f *flow) current() *paragraph {
	if len(f.paragraphs) == 0 {
		return nil
	}
	return &f.paragraphs[len(f.paragraphs)-1]
}

// write appends text to the innermost open paragraph.
func (f *flow) write(text string) {
	if p := f.current(); p != nil {
		p.text.WriteString(text)
	}
}

// closeParagraph ends the innermost paragraph. In a table it is a part of the present cell.
func (f *flow) closeParagraph() {
	p := f.current()
	if p == nil {
		return
	}
	text := strings.TrimSpace(p.text.String())
	finished := paragraph{style: p.style, level: p.level, item: p.item}
	f.paragraphs = f.paragraphs[:len(f.paragraphs)-1]
	if text == "" {
		return
	}
	if len(f.tables) > 0 {
		f.tables[len(f.tables)-1].addToCell(text)
		return
	}
	f.emit(text, finished)
}

func (f *flow) openTable() { f.tables = append(f.tables, tableRow{}) }

func (f *flow) closeCell() {
	if n := len(f.tables); n > 0 {
		t := &f.tables[n-1]
		t.cells = append(t.cells, strings.Join(strings.Fields(t.cell.String()), " "))
		t.cell.Reset()
	}
}

// closeRow ends a row. The row of an inner table is a part of the outer table's cell.
func (f *flow) closeRow() {
	n := len(f.tables)
	if n == 0 {
		return
	}
	text := strings.Trim(strings.Join(f.tables[n-1].cells, " | "), " |")
	f.tables[n-1].cells = nil
	switch {
	case text == "":
	case n > 1:
		f.tables[n-2].addToCell(text)
	default:
		f.emit(text, paragraph{row: true})
	}
}

func (f *flow) closeTable() {
	if n := len(f.tables); n > 0 {
		f.tables = f.tables[:n-1]
	}
}

// addToCell appends a paragraph to the present cell.
func (t *tableRow) addToCell(text string) {
	if t.cell.Len() > 0 {
		t.cell.WriteByte(' ')
	}
	t.cell.WriteString(text)
}

// writeParagraph writes a paragraph to b.
func (b *builder) writeParagraph(text string, p paragraph) {
	switch {
	case p.row:
		b.write(text + "\n")
	case p.item:
		b.write("- " + text + "\n")
	default:
		if s := b.text.String(); s != "" && !strings.HasSuffix(s, "\n\n") {
			b.write("\n") // after a list or a table
		}
		b.write(text + "\n\n")
	}
}
