package chromem_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/capacity"
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

// TestMemory checks that the memory of vectors is reserved, that vectors beyond the app's share are refused, and that what is
// removed is returned.
func TestMemory(t *testing.T) {
	t.Parallel()
	const dimension = 4096 // 16 KiB each
	for _, path := range []string{"", filepath.Join(t.TempDir(), "vectors")} {
		var reserved int64
		pool := capacity.NewPool(8<<20, func(n int64) { reserved = n })
		newStore := func() *chromem.Store {
			return chromem.New(chromem.Options{Path: path, Memory: pool.NewReservation("acme", 1)})
		}
		s := newStore()
		add := func(collection string, first, n int) error {
			var docs []vectorstore.Document
			for i := range n {
				docs = append(docs, vectorstore.Document{ID: fmt.Sprint(first + i), Vector: newVector(dimension, first+i)})
			}
			return s.UpsertDocuments(t.Context(), collection, docs)
		}
		requireReserved := func(when string, least, most int64) {
			t.Helper()
			if reserved < least || reserved > most {
				t.Errorf("%s: %d bytes are reserved, want %d to %d", when, reserved, least, most)
			}
		}
		if err := add("a", 0, 100); err != nil {
			t.Fatal(err)
		}
		requireReserved("100 vectors", 100*4*dimension, 2<<20)
		if err := add("a", 0, 100); err != nil {
			t.Fatal(err)
		}
		requireReserved("the same again", 100*4*dimension, 2<<20)
		if err := add("b", 0, 100); err != nil {
			t.Fatal(err)
		}
		err := add("c", 0, 100)
		if _, rejected := errors.AsType[*vectorstore.RejectedError](err); !rejected || !strings.Contains(err.Error(), "no memory left") {
			t.Errorf("vectors beyond the share of the app: %v", err)
		}
		requireReserved("above the share", 3<<20, 4<<20)
		if found, err := s.Search(t.Context(), "a", vectorstore.Query{Vector: newVector(dimension, 7), Limit: 1}); err != nil || len(found) != 1 || found[0].ID != "7" {
			t.Errorf("a search of a full store: %v %v", found, err)
		}
		if err := errors.Join(s.DropCollection(t.Context(), "c"), s.DropCollection(t.Context(), "b"), s.DeleteDocuments(t.Context(), "a", []string{"0", "1", "x"})); err != nil {
			t.Fatal(err)
		}
		requireReserved("98 vectors", 98*4*dimension, 2<<20)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		requireReserved("closed", 0, 0)
		if err := add("a", 0, 1); err == nil {
			t.Error("a closed store takes vectors")
		}
		if path == "" {
			continue
		}
		s = newStore()
		if missing, err := s.FindMissing(t.Context(), "a", []string{"1", "2"}); err != nil || len(missing) != 1 {
			t.Error(missing, err)
		}
		requireReserved("read from the folder", 98*4*dimension, 3<<20)
		if err := s.DropCollection(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		requireReserved("dropped", 0, 64<<10)
		_ = s.Close()
	}
}

// newVector returns a vector that differs from those of other numbers.
func newVector(dimension, number int) []float32 {
	v := make([]float32, dimension)
	for i := range v {
		v[i] = 0.123456
	}
	v[number] = 50
	return v
}

// TestVectorLength checks that a vector above the bound is refused, and one of another length than the collection's.
func TestVectorLength(t *testing.T) {
	t.Parallel()
	s := chromem.New(chromem.Options{})
	for _, c := range []struct {
		dimension int
		works     bool
	}{{vectorstore.MaxDimension + 1, false}, {3, true}, {4, false}, {3, true}} {
		err := s.UpsertDocuments(t.Context(), "c", []vectorstore.Document{{ID: fmt.Sprint(c.dimension), Vector: newVector(c.dimension, 0)}})
		if _, rejected := errors.AsType[*vectorstore.RejectedError](err); c.works != (err == nil) || !c.works && !rejected {
			t.Errorf("a vector of %d numbers: %v", c.dimension, err)
		}
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

// TestTurns has many searches of one app wait: the search of another app comes second, and a caller who leaves takes no turn.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := map[string]*chromem.Store{}
		for _, app := range []string{"acme", "globex"} {
			stores[app] = chromem.New(chromem.Options{App: app})
			if err := stores[app].UpsertDocuments(t.Context(), "c", []vectorstore.Document{{ID: app, Vector: []float32{1, 0}}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := chromem.Searches.Acquire(t.Context(), "a third app"); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []string
		search := func(ctx context.Context, app string) {
			found, err := stores[app].Search(ctx, "c", vectorstore.Query{Vector: []float32{1, 0}, Limit: 1})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				order = append(order, err.Error())
			case len(found) != 1 || found[0].ID != app:
				t.Errorf("%s found %v", app, found)
			default:
				order = append(order, app)
			}
		}
		for range 3 {
			go search(t.Context(), "acme")
		}
		left, leave := context.WithCancel(t.Context())
		go search(left, "acme")
		synctest.Wait()
		go search(t.Context(), "globex")
		synctest.Wait()
		leave()
		synctest.Wait()
		chromem.Searches.Release()
		synctest.Wait()
		if diff := cmp.Diff([]string{"context canceled", "acme", "globex", "acme", "acme"}, order); diff != "" {
			t.Error(diff)
		}
	})
}
