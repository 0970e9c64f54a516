package billing

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// FileFormat is how usage is written into files.
type FileFormat string

// The formats: a JSON object on each line, or a table with a head.
const (
	NDJSON FileFormat = "ndjson"
	CSV    FileFormat = "csv"
)

// FileSink writes each batch into a file of its own in a folder, named after its number. A file is there as a whole or not at
// all, and one that is written again is the same.
type FileSink struct {
	Folder string // it must exist
	Format FileFormat
}

// Send implements [Sink].
func (f FileSink) Send(_ context.Context, b ExportBatch) (refused int, err error) {
	var content bytes.Buffer
	if f.Format == CSV {
		err = writeCSV(&content, b.Rows)
	} else {
		lines := json.NewEncoder(&content)
		for _, r := range b.Rows {
			if err == nil {
				err = lines.Encode(r.encodeFields())
			}
		}
	}
	if err != nil {
		return 0, err
	}
	return 0, writeFileAtomic(f.Folder, fmt.Sprintf("%s-%012d.%s", b.Export, b.Number, f.Format), content.Bytes())
}

func writeCSV(to *bytes.Buffer, rows []ExportRow) error {
	head := make([]string, len(exportFields))
	for i, f := range exportFields {
		head[i] = f.name
	}
	table := [][]string{head}
	for _, r := range rows {
		table = append(table, r.encodeCells())
	}
	return csv.NewWriter(to).WriteAll(table)
}

// writeFileAtomic puts a file into a folder, where it appears when it is whole and on disk.
func writeFileAtomic(folder, name string, content []byte) (err error) {
	f, err := os.CreateTemp(folder, ".export-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(0o640)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(folder, name))
	}
	if err != nil {
		return err
	}
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}
