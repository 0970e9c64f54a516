package function

import "strings"

// markdownTable is an open table. Its rows are written as they come, with cells without padding. Cells that span
// columns or rows are followed by empty cells, since Markdown has no spans.
type markdownTable struct {
	// rows counts the complete rows.
	rows int
	// inRow reports that a row is open, inCell that a cell is.
	inRow  bool
	inCell bool
	// column counts the complete cells of the row.
	column int
	// spanned is, by column, the number of further rows that a cell above covers (rowspan).
	spanned []int
	// colspan and rowspan are those of the open cell.
	colspan int
	rowspan int
}

// inCell reports whether a table cell is open.
func (m *markdownWriter) inCell() bool { return m.table != nil && m.table.inCell }

// beginCell opens a cell that covers columns and rows.
func (m *markdownWriter) beginCell(colspan, rowspan int) {
	m.endCell()
	m.endCode()
	m.suspendMarks()
	t := m.table
	if !t.inRow {
		if t.rows > 0 {
			m.breaksDue = 1
		}
		m.writeLineStart()
		m.out.WriteByte('|')
		t.inRow, t.column = true, 0
	}
	m.writeSpanned()
	t.inCell, t.colspan, t.rowspan = true, colspan, rowspan
	m.out.WriteByte(' ')
	m.spaceDue = false
}

// writeSpanned writes empty cells for the columns that cells above cover.
func (m *markdownWriter) writeSpanned() {
	for t := m.table; t.column < len(t.spanned) && t.spanned[t.column] > 0 && !m.isFull(); t.column++ {
		t.spanned[t.column]--
		m.out.WriteString("  |")
	}
}

// endCell closes the open cell, if any.
func (m *markdownWriter) endCell() {
	t := m.table
	if t == nil || !t.inCell {
		return
	}
	m.endCode()
	m.suspendMarks()
	m.spaceDue = false
	t.inCell = false
	m.out.WriteString(" |")
	for n := range t.colspan {
		if n > 0 {
			m.out.WriteString("  |")
		}
		// The columns that this cell covers in the rows below.
		if t.column < len(t.spanned) {
			t.spanned[t.column] = t.rowspan - 1
		} else if t.column < maxColumns {
			t.spanned = append(t.spanned, t.rowspan-1)
		}
		t.column++
	}
}

// endRow closes the open row, if any. After the first row it writes the line that Markdown requires below the header.
func (m *markdownWriter) endRow() {
	t := m.table
	if t == nil || !t.inRow {
		return
	}
	m.endCell()
	m.writeSpanned()
	t.inRow = false
	if t.rows++; t.rows == 1 {
		m.writeLine("|" + strings.Repeat("---|", t.column))
	}
}

// endTable closes the open table, if any.
func (m *markdownWriter) endTable() {
	m.endRow()
	m.table = nil
}
