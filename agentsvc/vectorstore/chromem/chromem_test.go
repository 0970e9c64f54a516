package chromem_test

import (
	"os"
	"path/filepath"
	"testing"

	"stoa/agentsvc/vectorstore"
	"stoa/agentsvc/vectorstore/chromem"
	"stoa/agentsvc/vectorstore/vectorstoretest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]chromem.Options{"memory": {}, "folder": {Path: "x"}, "compressed": {Path: "x", Compress: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vectorstoretest.RunSuite(t, func(t *testing.T) vectorstore.Store {
				if o.Path != "" {
					o.Path = filepath.Join(t.TempDir(), "vectors")
				}
				return chromem.New(o)
			})
		})
	}
}

// TestFolder checks that a store finds what an earlier one wrote to its folder.
func TestFolder(t *testing.T) {
	t.Parallel()
	o := chromem.Options{Path: filepath.Join(t.TempDir(), "a", "b")}
	docs := []vectorstore.Document{{ID: "x", Vector: []float32{0, 1}}}
	first := chromem.New(o)
	if _, err := os.Stat(o.Path); err == nil {
		t.Error("the folder is made before it is used")
	}
	if err := first.UpsertDocuments(t.Context(), "c", docs); err != nil {
		t.Fatal(err)
	}
	got, err := chromem.New(o).Search(t.Context(), "c", vectorstore.Query{Vector: []float32{0, 2}, Limit: 1})
	if err != nil || len(got) != 1 || got[0].ID != "x" {
		t.Error(got, err)
	}
	o.Prefix = "other"
	if got, err := chromem.New(o).Search(t.Context(), "c", vectorstore.Query{Vector: []float32{0, 2}, Limit: 1}); err != nil || len(got) != 0 {
		t.Error("a store with another prefix finds", got, err)
	}
}

// TestUnusableFolder checks that an unusable folder is an error.
func TestUnusableFolder(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := chromem.New(chromem.Options{Path: file})
	if err := s.UpsertDocuments(t.Context(), "c", []vectorstore.Document{{ID: "x", Vector: []float32{1}}}); err == nil {
		t.Error("a file serves as a folder")
	}
	if _, err := s.Search(t.Context(), "c", vectorstore.Query{Vector: []float32{1}, Limit: 1}); err == nil {
		t.Error("a search in no folder finds nothing instead of failing")
	}
}
