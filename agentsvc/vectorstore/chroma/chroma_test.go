package chroma_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/vectorstore"
	"stoa/agentsvc/vectorstore/chroma"
	"stoa/agentsvc/vectorstore/remote"
	"stoa/agentsvc/vectorstore/remote/remotetest"
	"stoa/agentsvc/vectorstore/vectorstoretest"
	"stoa/tenancy/db/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStore runs the suite against a real server. Each test has collections of its own.
func TestStore(t *testing.T) {
	program := os.Getenv("STOA_TEST_CHROMA")
	if program == "" {
		dbtest.SkipMissing(t, "without STOA_TEST_CHROMA (the program that .ci/vector-stores prints) the real Chroma is not tested")
	}
	folder := t.TempDir()
	address := remotetest.StartServer(t, program, nil, func(port string) []string {
		return []string{"run", "--path", folder, "--host", "127.0.0.1", "--port", port}
	})
	n := 0
	vectorstoretest.RunSuite(t, func(t *testing.T) vectorstore.Store {
		n++
		o := remotetest.NewOptions(t, address)
		o.Prefix = "test" + strings.Repeat("x", n)
		return chroma.New(o)
	})
}

func TestConnection(t *testing.T) {
	t.Parallel()
	remotetest.RunConnectionSuite(t, func(o remote.Options) (vectorstore.Store, error) { return chroma.New(o), nil })
}

// TestIdentity checks that the tenant and the database of a key are asked for once, and that without a key the default
// ones are used.
func TestIdentity(t *testing.T) {
	t.Parallel()
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		switch {
		case r.URL.Path == "/api/v2/auth/identity" && r.Header.Get("X-Chroma-Token") == remotetest.Key:
			_, _ = w.Write([]byte(`{"user_id": "u", "tenant": "t/1", "databases": ["d", "e"]}`))
		default:
			http.Error(w, `{"error": "NotFoundError"}`, http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	o := remotetest.NewOptions(t, server.Listener.Addr().String())
	for _, key := range []string{remotetest.Key, ""} {
		o.APIKey = key
		s := chroma.New(o)
		for range 2 {
			if err := s.DropCollection(t.Context(), "c"); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := []string{"/api/v2/auth/identity", "/api/v2/tenants/t/1/databases/d/", "/api/v2/tenants/t/1/databases/d/",
		"/api/v2/tenants/default_tenant/databases/default_database/", "/api/v2/tenants/default_tenant/databases/default_database/"}
	if len(paths) != len(want) {
		t.Fatal(paths)
	}
	for i, prefix := range want {
		if !strings.HasPrefix(paths[i], prefix) {
			t.Errorf("request %d goes to %s, want %s", i, paths[i], prefix)
		}
	}
}

// TestFlood checks that an answer with more than was asked for is refused after a bounded number of bytes, whether it has
// many documents or few long ones, and that the memory of answers is returned to the pool.
func TestFlood(t *testing.T) {
	const parallel, limit = 16, 10
	var reserved atomic.Int64
	for name, c := range map[string]struct {
		ids  string
		want string
	}{
		"many documents":      {strings.Repeat(`"x",`, 20_000), "more than the"},
		"some too many":       {strings.Repeat(`"x",`, limit+1), "more documents than it was asked for"},
		"endless documents":   {strings.Repeat(`"00000000-0000-0000-0000-000000000000",`, 320_000), "more than the"},
		"one that is endless": {`"` + strings.Repeat("x", 12<<20) + `",`, "more than the"},
	} {
		t.Run(name, func(t *testing.T) {
			body := []byte(`{"ids": [[` + strings.TrimSuffix(c.ids, ",") + `]], "distances": [[]]}`)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/query") {
					_, _ = w.Write(body)
					return
				}
				_, _ = w.Write([]byte(`{"id": "c"}`))
			}))
			t.Cleanup(server.Close)
			o := remotetest.NewOptions(t, server.Listener.Addr().String())
			o.APIKey, o.Tenant = "", "acme"
			o.Memory = capacity.NewPool(64<<20, func(n int64) { reserved.Store(n) })
			s := chroma.New(o)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var wg sync.WaitGroup
			for range parallel {
				wg.Go(func() {
					_, err := s.Search(t.Context(), "c", vectorstore.Query{Vector: []float32{1}, Limit: limit})
					if _, rejected := errors.AsType[*vectorstore.RejectedError](err); !rejected || !strings.Contains(err.Error(), c.want) {
						t.Errorf("the answer is used: %v", err)
					}
				})
			}
			wg.Wait()
			runtime.ReadMemStats(&after)
			// The connections of client and server take most of it.
			if each := (after.TotalAlloc - before.TotalAlloc) / parallel; each > 512<<10 {
				t.Errorf("a search allocates %d bytes", each)
			}
			if reserved.Load() != 0 {
				t.Errorf("%d bytes remain reserved", reserved.Load())
			}
		})
	}
}
