// Package file exports usage to files.
package file

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"stoa/agentsvc/temporary"
	"stoa/billing/export"
)

// Format is the format of the files of a [Sink].
type Format string

// The formats: one JSON object per line, or CSV with a header.
const (
	NDJSON Format = "ndjson"
	CSV    Format = "csv"
)

// Sink writes each batch to a file of its own, named by the export and the batch's number. A file appears complete
// or not at all. A repeated batch replaces its file by one with the same content.
type Sink struct {
	// Folder must exist.
	Folder string
	Format Format
}

// Send implements [export.Sink].
func (s Sink) Send(_ context.Context, b export.Batch) (refused int, err error) {
	var content bytes.Buffer
	if s.Format == CSV {
		err = writeCSV(&content, b.Rows)
	} else {
		lines := json.NewEncoder(&content)
		for _, r := range b.Rows {
			if err == nil {
				err = lines.Encode(r.EncodeFields())
			}
		}
	}
	if err != nil {
		return 0, err
	}
	return 0, writeFileAtomic(s.Folder, fmt.Sprintf("%s-%012d.%s", b.Export, b.Number, s.Format), content.Bytes())
}

// writeCSV writes rows as CSV with a header of the field names.
func writeCSV(to *bytes.Buffer, rows []export.Row) error {
	table := [][]string{export.FieldNames()}
	for _, r := range rows {
		table = append(table, r.EncodeCells())
	}
	return csv.NewWriter(to).WriteAll(table)
}

// writeFileAtomic writes a file by a temporary one that is synced and renamed. The folder is synced as well: otherwise
// the name could be lost in a power failure after the batch was acknowledged.
func writeFileAtomic(folder, name string, content []byte) (err error) {
	f, err := temporary.CreateFile(folder, ".export-")
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
	// It is renamed before it is closed, which ends the lock by which others know that it is in use.
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(folder, name))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}
