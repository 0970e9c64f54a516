package response

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"stoa/agentsvc/processor"
	"stoa/agentsvc/surface/encode"
)

// countingWriter is a ResponseWriter that counts bytes and drops them.
type countingWriter struct {
	header http.Header
	bytes  int
}

func (w *countingWriter) Header() http.Header         { return w.header }
func (w *countingWriter) WriteHeader(int)             {}
func (w *countingWriter) Write(b []byte) (int, error) { w.bytes += len(b); return len(b), nil }

type item struct{ Text string }

// TestWriteListHoldsOnePiece checks that a list is written without being in memory as a whole.
func TestWriteListHoldsOnePiece(t *testing.T) {
	text := strings.Repeat("x", 1000)
	list := func(yield func(item) bool) {
		for range 8000 {
			if !yield(item{text}) {
				return
			}
		}
	}
	allocated := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	encoder := allocated(func() { // what encoding/json allocates, which is much with the race detector
		var b bytes.Buffer
		for one := range list {
			b.Reset()
			if err := encode.AppendJSONLine(&b, one); err != nil {
				t.Fatal(err)
			}
		}
	})
	out := &countingWriter{header: http.Header{}}
	n := allocated(func() {
		if err := WriteList(t.Context(), "acme", out, "items", list, map[string]any{"total": 8000}); err != nil {
			t.Fatal(err)
		}
	})
	if n > encoder+3<<20 || out.bytes < 8_000_000 {
		t.Errorf("%d bytes were allocated to write %d, %d of them by the encoder", n, out.bytes, encoder)
	}
}

// TestWriteList checks that lists that fit into one piece and those that do not are the same JSON.
func TestWriteList(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 1000} {
		rec := httptest.NewRecorder()
		items := func(yield func(item) bool) {
			for range n {
				if !yield(item{strings.Repeat("<", 100)}) {
					return
				}
			}
		}
		if err := WriteList(t.Context(), "acme", rec, "items", items, map[string]any{"total": n}); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Items []item
			Total int
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || len(got.Items) != n || got.Total != n || rec.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%d items: %d, total %d, %v, %q", n, len(got.Items), got.Total, err, rec.Header().Get("Content-Type"))
		}
	}
}

// TestWriteListWaitsForProcessor checks that a long list is encoded with a permit of processor.Shared, which it does not
// have while it writes, and that a short one needs none.
func TestWriteListWaitsForProcessor(t *testing.T) {
	held := 0
	for tryAcquire() {
		held++
	}
	release := sync.OnceFunc(func() {
		for range held {
			processor.Shared.Release()
		}
	})
	defer release()
	list := func(n int) func(yield func(item) bool) {
		return func(yield func(item) bool) {
			for range n {
				if !yield(item{strings.Repeat("x", 1000)}) {
					return
				}
			}
		}
	}
	if err := WriteList(t.Context(), "acme", &countingWriter{header: http.Header{}}, "items", list(20), map[string]any{"total": 20}); err != nil {
		t.Errorf("a short list: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := WriteList(ctx, "acme", &countingWriter{header: http.Header{}}, "items", list(100), map[string]any{"total": 100}); !errors.Is(err, context.Canceled) {
		t.Errorf("a long list without a permit: %v", err)
	}
	release()
	if err := WriteList(t.Context(), "acme", &permitWriter{countingWriter: countingWriter{header: http.Header{}}, t: t}, "items", list(100), map[string]any{"total": 100}); err != nil {
		t.Errorf("a long list: %v", err)
	}
}

// tryAcquire takes a permit if one is free.
func tryAcquire() bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return processor.Shared.Acquire(ctx, "acme") == nil
}

// permitWriter checks at each write that a permit is free.
type permitWriter struct {
	countingWriter
	t *testing.T
}

func (w *permitWriter) Write(b []byte) (int, error) {
	if !tryAcquire() {
		w.t.Error("the permit is held while the list is written")
	} else {
		processor.Shared.Release()
	}
	return w.countingWriter.Write(b)
}
