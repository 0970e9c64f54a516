package remote_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/egress"
	"stoa/agentsvc/vectorstore"
	"stoa/agentsvc/vectorstore/remote"
	"stoa/agentsvc/vectorstore/remote/remotetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call sends a request with a body to a server that answers with handler.
func call(t *testing.T, handler http.HandlerFunc) (out map[string]any, err error) {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c := remote.NewClient("kind", remotetest.NewOptions(t, server.Listener.Addr().String()), 1, http.Header{"X-Key": {remotetest.Key}})
	err = c.Call(t.Context(), http.MethodPost, "/path", map[string]int{"a": 1}, &out, 16<<20)
	return out, err
}

// TestStatus checks the errors for answers, and which of them are tried again. No error contains the server's text.
func TestStatus(t *testing.T) {
	t.Parallel()
	const rejected, unavailable, notFound = "rejected", "unavailable", "not found"
	for _, c := range []struct {
		status   int
		body     string
		kind     string
		message  string
		requests int64
	}{
		{200, `{"a": 2}`, "", "", 1},
		{200, `<html>a secret`, rejected, "the vector store (kind) answered with an invalid response: check that host and port are those of a kind server", 1},
		{200, `{"a": "` + strings.Repeat("x", 17<<20) + `"}`, rejected, "the vector store (kind) answered with more than the 16777216 bytes that the request can have: check that it is a kind server", 1},
		{400, `a secret`, rejected, "the vector store (kind) refused the request (HTTP 400): check that its version is supported, and that its collection has vectors of the embedder's length", 1},
		{401, `a secret`, rejected, "the vector store (kind) refused the API key: check api_key", 1},
		{403, `a secret`, rejected, "the vector store (kind) refused the API key: check api_key", 1},
		{404, `{"error": "a secret"}`, notFound, "the collection does not exist", 1},
		{404, ``, notFound, "the collection does not exist", 1},
		{404, `<html>a secret`, rejected, "the vector store (kind) answered with an invalid response: check that host and port are those of a kind server", 1},
		{429, `a secret`, unavailable, "the vector store (kind) is not available: it answered with HTTP 429", 3},
		{500, `a secret`, unavailable, "the vector store (kind) is not available: it answered with HTTP 500", 3},
		{503, `a secret`, unavailable, "the vector store (kind) is not available: it answered with HTTP 503", 3},
	} {
		t.Run(fmt.Sprintf("%d %.20s", c.status, c.body), func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			_, err := call(t, func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			})
			kind := ""
			if _, ok := errors.AsType[*vectorstore.RejectedError](err); ok {
				kind = rejected
			} else if _, ok := errors.AsType[*vectorstore.UnavailableError](err); ok {
				kind = unavailable
			} else if errors.Is(err, remote.ErrNotFound) {
				kind = notFound
			}
			if kind != c.kind || err != nil && err.Error() != c.message {
				t.Errorf("got %q (%s), want %q (%s)", err, kind, c.message, c.kind)
			}
			if requests.Load() != c.requests {
				t.Errorf("%d requests, want %d", requests.Load(), c.requests)
			}
		})
	}
}

// TestRepeat checks that a request is sent again, whole, to a store that comes back.
func TestRepeat(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	out, err := call(t, func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 100)
		n, _ := r.Body.Read(body)
		if r.Method != http.MethodPost || r.URL.Path != "/path" || r.Header.Get("X-Key") != remotetest.Key || r.UserAgent() != egress.UserAgent || string(body[:n]) != `{"a":1}` {
			t.Errorf("%s %s of %s with %s", r.Method, r.URL.Path, r.UserAgent(), body[:n])
		}
		if requests.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(`{"b": "c"}`))
	})
	if err != nil || out["b"] != "c" {
		t.Error(out, err)
	}
}

// TestBatches checks that batches are bounded by their number of documents and by the size of their vectors.
func TestBatches(t *testing.T) {
	t.Parallel()
	for dimension, want := range map[int]string{3: "[100 100 30]", 3000: "[33 33 33 33 33 33 32]", 60_000: fmt.Sprint(slicesOf(1, 230))} {
		docs := make([]vectorstore.Document, 230)
		vector := make([]float32, dimension)
		for i := range docs {
			docs[i].Vector = vector
		}
		b := &recordingBackend{}
		if err := remote.NewStore("kind", remote.Options{}, b).UpsertDocuments(t.Context(), "c", docs); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(b.batches); got != want {
			t.Errorf("vectors of %d numbers go in batches of %s, want %s", dimension, got, want)
		}
	}
}

// slicesOf returns n times x.
func slicesOf(x, n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = x
	}
	return list
}

// TestCollectionNames checks that names fit the rules of all kinds, differ, and begin with the prefix.
func TestCollectionNames(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, prefix := range []string{"", "acme", "ac/me", strings.Repeat("p", 30)} {
		for i, collection := range []string{"", "a", "A", strings.Repeat("long/", 1000), "a"} {
			tenant := fmt.Sprint("tenant", i/4)
			b := &recordingBackend{}
			if err := remote.NewStore("kind", remote.Options{Prefix: prefix, Tenant: tenant}, b).DropCollection(t.Context(), collection); err != nil {
				t.Error(err)
			}
			name := b.dropped
			if len(name) > 63 || !strings.HasPrefix(name, strings.ReplaceAll(prefix, "/", "_")) || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || names[name] {
				t.Errorf("the name of %.20q with the prefix %q is %s", collection, prefix, name)
			}
			names[name] = true
		}
	}
}

// TestSearchBounds checks that a search never asks for more than MaxMatches, and that what a store returns beyond the
// limit or below the score is left out.
func TestSearchBounds(t *testing.T) {
	t.Parallel()
	b := &recordingBackend{matches: []vectorstore.Match{{ID: "c", Score: 0.2}, {ID: "a", Score: 0.9}, {ID: "b", Score: 0.5}, {ID: "d", Score: float32(math.NaN())}}}
	got, err := remote.NewStore("kind", remote.Options{}, b).Search(t.Context(), "c", vectorstore.Query{Limit: 4, MinScore: 0.4})
	if err != nil || fmt.Sprint(got) != "[{a 0.9} {b 0.5}]" || b.limit != 4 {
		t.Error(got, err, b.limit)
	}
	if got, err := remote.NewStore("kind", remote.Options{}, b).Search(t.Context(), "c", vectorstore.Query{Limit: 1}); err != nil || len(got) != 1 {
		t.Error(got, err)
	}
	if _, err := remote.NewStore("kind", remote.Options{}, b).Search(t.Context(), "c", vectorstore.Query{Limit: 1 << 40}); err != nil || b.limit != remote.MaxMatches {
		t.Error(err, b.limit)
	}
}

// TestForgottenCollection checks that an upsert whose collection does not exist after it was created is unavailable.
func TestForgottenCollection(t *testing.T) {
	t.Parallel()
	b := &recordingBackend{err: remote.ErrNotFound}
	err := remote.NewStore("kind", remote.Options{}, b).UpsertDocuments(t.Context(), "c", make([]vectorstore.Document, 1))
	if _, ok := errors.AsType[*vectorstore.UnavailableError](err); !ok {
		t.Error(err)
	}
}

// TestTLS checks that requests are encrypted with EnableTLS, to a server whose certificate is trusted only.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	certificate, trusted := remotetest.NewTLSOptions(t, server.Listener.Addr().String())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	plain, distrustful := remotetest.NewOptions(t, server.Listener.Addr().String()), remotetest.NewOptions(t, server.Listener.Addr().String())
	distrustful.EnableTLS = true
	for name, c := range map[string]struct {
		options remote.Options
		works   bool
	}{"trusted": {trusted, true}, "not encrypted": {plain, false}, "not trusted": {distrustful, false}} {
		err := remote.NewClient("kind", c.options, 1, http.Header{}).Call(t.Context(), http.MethodGet, "/", nil, nil, 0)
		if (err == nil) != c.works {
			t.Errorf("%s: %v", name, err)
		}
	}
}
