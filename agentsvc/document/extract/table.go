package extract

import (
	"encoding/csv"
	"errors"
	"io"
	"strconv"
	"strings"

	"stoa/agentsvc/document"
)

// maxColumnName bounds the name of a column, in bytes: it is repeated in each row.
const maxColumnName = 80

// table writes rows as lines of text, "name: value | name: value", so that a row is understood without the row of
// names. A line of text is a row of the table: rows that do not follow each other begin a new section.
type table struct {
	b     *builder
	place document.Place // of the next row, if it follows
	names []string       // of the columns, nil = not known yet, empty = the table has none
}

// newTable returns a table on a sheet.
func newTable(b *builder, sheet string) *table {
	return &table{b: b, place: document.Place{Sheet: sheet}}
}

// addRow adds the row at a line, from 1. The first row with text names the columns if none of its cells is a number.
func (t *table) addRow(line int, cells []string) {
	for i, cell := range cells {
		cells[i] = strings.Join(strings.Fields(cell), " ")
	}
	if strings.Join(cells, "") == "" {
		return
	}
	if t.names == nil {
		t.names = columnNames(cells)
	}
	if line != t.place.Line {
		t.place.Line = line
		t.b.setPlace(t.place)
	}
	t.place.Line++
	first := true
	for i, cell := range cells {
		if cell == "" {
			continue
		}
		if !first {
			t.b.write(" | ")
		}
		first = false
		if i < len(t.names) && t.names[i] != "" && t.names[i] != cell {
			t.b.write(t.names[i] + ": ")
		}
		t.b.write(cell)
	}
	t.b.write("\n")
}

// columnNames returns the names of the columns if cells, the first row, are such, else an empty list.
func columnNames(cells []string) []string {
	names := make([]string, len(cells))
	count := 0
	for i, cell := range cells {
		if _, err := strconv.ParseFloat(strings.ReplaceAll(cell, ",", "."), 64); err == nil {
			return []string{}
		}
		if names[i] = cleanLine(cell, maxColumnName); names[i] != "" {
			count++
		}
	}
	if count < 2 {
		return []string{}
	}
	return names
}

// readCSV reads values that are separated by commas, semicolons, tabs or bars, whichever the first line has most of.
func readCSV(b *builder, f file) error {
	text, err := decodeText(f.data, f.charset)
	if err != nil {
		return err
	}
	text = normalizeBreaks(cleanText(text))
	first, _, _ := strings.Cut(strings.TrimLeft(text, "\n"), "\n")
	r := csv.NewReader(strings.NewReader(text))
	r.FieldsPerRecord, r.LazyQuotes, r.ReuseRecord = -1, true, true
	most := strings.Count(first, ",")
	for _, separator := range ";\t|" {
		if n := strings.Count(first, string(separator)); n > most {
			most, r.Comma = n, separator
		}
	}
	t := newTable(b, "")
	for {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return newDamaged("its quotes are not closed")
		}
		line, _ := r.FieldPos(0)
		t.addRow(line, cells)
	}
}
