package file_test

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"stoa/agentsvc/agentsvctest"

	"stoa/billing/export/exporttest"
	"stoa/billing/export/file"
)

func TestExportFile(t *testing.T) {
	t.Parallel()
	for _, format := range []file.Format{file.NDJSON, file.CSV} {
		t.Run(string(format), func(t *testing.T) {
			folder := t.TempDir()
			_, err := exporttest.ExportCalls(t, file.Sink{Folder: folder, Format: format})
			agentsvctest.RequireNoErrors(t, err)
			entries, err := os.ReadDir(folder)
			agentsvctest.RequireNoErrors(t, err)
			if len(entries) != 1 || entries[0].Name() != "out-000000000001."+string(format) {
				t.Fatalf("files %v", entries)
			}
			f, err := os.Open(filepath.Join(folder, entries[0].Name()))
			agentsvctest.RequireNoErrors(t, err)
			defer f.Close()
			if format == file.CSV {
				rows, err := csv.NewReader(f).ReadAll()
				agentsvctest.RequireNoErrors(t, err)
				at, decimal := slices.Index(rows[0], "charge"), slices.Index(rows[0], "charge_decimal")
				if len(rows) != 4 || rows[1][at] != "10" || rows[1][decimal] != "0.00000001" || rows[0][0] != "id" {
					t.Errorf("rows %v", rows)
				}
				return
			}
			n := 0
			for lines := bufio.NewScanner(f); lines.Scan(); n++ {
				var row map[string]any
				agentsvctest.RequireNoErrors(t, json.Unmarshal(lines.Bytes(), &row))
				if row["charge"] != 10.0 || row["charge_decimal"] != "0.00000001" || row["cost_decimal"] != "0.000000004" || row["input_tokens"] != 100.0 || row["app"] == "" || row["id"] == "" {
					t.Errorf("row %v", row)
				}
			}
			if n != 3 {
				t.Errorf("%d lines", n)
			}
		})
	}
	_, err := exporttest.ExportCalls(t, file.Sink{Folder: "/nowhere", Format: file.CSV})
	if err == nil {
		t.Error("a folder that is not there will do")
	}
}
