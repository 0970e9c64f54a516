package runtime

import (
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/config"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/vectorstore"
)

// newVectorStoreAccess returns what an app with vector stores may reach, with or without private networks.
func newVectorStoreAccess(t *testing.T, private bool, stores map[string]*config.VectorStore) *hostAccess {
	public, own := egress.New(egress.Options{}), egress.New(egress.Options{PrivateNetwork: true})
	b := &build{cfg: &config.Config{VectorStores: stores}, tenant: Tenant{ID: "acme", PrivateNetwork: private}, log: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() {
		for _, c := range b.closers {
			if err := c(); err != nil {
				t.Error(err)
			}
		}
		public.Close()
		own.Close()
	})
	return newHostAccess(b, Host{PublicEgress: public, PrivateEgress: own}, RunLimits{})
}

// TestVectorStoresReachThroughEgress checks that a store of each type is built for its address, and that a private
// address is refused without the grant and called with it.
func TestVectorStoresReachThroughEgress(t *testing.T) {
	t.Parallel()
	calls := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls <- r.URL.Path
		http.Error(w, `{}`, http.StatusBadRequest)
	}))
	t.Cleanup(server.Close)
	host, text, _ := net.SplitHostPort(server.Listener.Addr().String())
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range slices.Sorted(maps.Keys(vectorStoreBuilders)) {
		for _, private := range []bool{false, true} {
			a := newVectorStoreAccess(t, private, map[string]*config.VectorStore{"v": {Type: kind, Host: host, Port: port}})
			s, err := a.newVectorStore("v", "")
			if err != nil {
				t.Fatal(err)
			}
			before := len(calls)
			_, err = s.Search(t.Context(), "c", vectorstore.Query{Vector: []float32{1}, Limit: 1})
			_, refused := errors.AsType[*egress.NotAllowedError](err)
			// Qdrant's server speaks another protocol: that it is not refused shows that it was called.
			if err == nil || refused == private || kind != "qdrant" && private == (len(calls) == before) {
				t.Errorf("%s, private network %t: %d requests and %v", kind, private, len(calls)-before, err)
			}
		}
	}
}

// TestVectorStoresAreShared checks that an entry is built once for each beginning of its collections' names, and that
// stores with different ones do not see each other's documents.
func TestVectorStoresAreShared(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	a := newVectorStoreAccess(t, false, map[string]*config.VectorStore{
		"v": {Type: "chromem", PersistPath: folder, Compress: true, Collection: "docs"}, "w": {Type: "chromem"},
	})
	open := func(name, collection string) vectorstore.Store {
		s, err := a.newVectorStore(name, collection)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	v, err := a.newVectorStore("v", "")
	if err != nil || v != open("v", "docs") || v == open("v", "other") || v == open("w", "docs") {
		t.Error("the stores are not shared by entry and collection", err)
	}
	if err := v.UpsertDocuments(t.Context(), "c", []vectorstore.Document{{ID: "x", Vector: []float32{1, 0}}}); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for name, s := range map[string]vectorstore.Store{"same": v, "other": open("v", "other"), "memory": open("w", "docs")} {
		found, err := s.Search(t.Context(), "c", vectorstore.Query{Vector: []float32{1, 0}, Limit: 5})
		if err != nil {
			t.Fatal(err)
		}
		got[name] = len(found)
	}
	if diff := cmp.Diff(map[string]int{"same": 1, "other": 0, "memory": 0}, got); diff != "" {
		t.Error(diff)
	}
	// The app's folder is named by its id.
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 || entries[0].Name() != "acme" {
		t.Error(entries, err)
	}
	if files, _ := filepath.Glob(filepath.Join(folder, "acme", "*", "*.gob.gz")); len(files) == 0 {
		t.Error("the files are not compressed")
	}
}
