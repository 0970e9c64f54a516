package extract

import (
	"bytes"
	"errors"

	"github.com/xuri/excelize/v2"
)

// readXLSX reads a workbook: the rows of each sheet as lines, with the names of the columns. Values are shown as their
// formats say; formulas as the results that the file has.
func readXLSX(b *builder, f file) error {
	if _, err := openArchive(f.data, b.limits); err != nil { // the library has fewer limits
		return err
	}
	// Without a limit of its own the library writes large parts to temporary files; the helper cannot write files.
	workbook, err := excelize.OpenReader(bytes.NewReader(f.data), excelize.Options{
		UnzipSizeLimit: b.limits.unpacked, UnzipXMLSizeLimit: b.limits.unpacked,
	})
	if err != nil {
		if errors.Is(err, excelize.ErrWorkbookPassword) {
			return newProblem(Encrypted, "the file is encrypted: upload a copy without a password")
		}
		return err
	}
	defer func() { _ = workbook.Close() }()
	if properties, err := workbook.GetDocProps(); err == nil && properties != nil {
		b.setTitle(properties.Title)
	}
	for _, sheet := range workbook.GetSheetList() {
		if err := readSheet(b, workbook, sheet); err != nil {
			return err
		}
	}
	return nil
}

// readSheet reads the rows of a sheet. A sheet of another kind, such as a chart, has none.
func readSheet(b *builder, workbook *excelize.File, sheet string) error {
	rows, err := workbook.Rows(sheet)
	var missing excelize.ErrSheetNotExist
	if errors.As(err, &missing) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	t := newTable(b, cleanLine(sheet, maxHeading))
	for line := 1; rows.Next(); line++ {
		cells, err := rows.Columns()
		if err != nil {
			return err
		}
		t.addRow(line, cells)
	}
	return rows.Error()
}
