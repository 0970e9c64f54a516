package embeddertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/vectorstore"
)

// Vendor describes the embedder under test.
type Vendor struct {
	New func(o embedder.Options) embedder.Embedder
	// Path is the path of its requests.
	Path string
	// Model is its default model.
	Model string
}

// RunSuite checks that a vendor's embedder behaves as [embedder.Embedder] requires.
func RunSuite(t *testing.T, v Vendor) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, v Vendor, s *Server)
	}{
		{"batches", testBatches}, {"nothing", testNoTexts}, {"dimension", testDimension}, {"refusals", testHTTPErrors}, {"timeout", testTimeout}, {"hostile answers", testHostileAnswers},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, v, NewServer(t)) })
	}
}

// newEmbedder returns an embedder that sends its requests to s.
func (v Vendor) newEmbedder(s *Server, o embedder.Options) embedder.Embedder {
	o.BaseURL, o.HTTP = s.URL, s.Client()
	return v.New(o)
}

// testBatches checks order, batch sizes, path, key and model.
func testBatches(t *testing.T, v Vendor, s *Server) {
	e := v.newEmbedder(s, embedder.Options{APIKey: "key", BatchSize: 2})
	texts := []string{"one", "two", "three", "four", "five"}
	got, err := e.Embed(t.Context(), agentsvc.Payer{}, embedder.Document, texts)
	if err != nil || len(got) != len(texts) {
		t.Fatal(got, err)
	}
	for i, text := range texts {
		if fmt.Sprint(got[i]) != fmt.Sprint(LetterVector(text)) {
			t.Errorf("the vector of %q is %v", text, got[i])
		}
	}
	var sizes []int
	for _, r := range s.Requests() {
		sizes = append(sizes, len(r.Texts()))
		if r.Path != v.Path || r.Key != "Bearer key" || r.Body["model"] != v.Model {
			t.Errorf("asked %s with key %q for %v", r.Path, r.Key, r.Body["model"])
		}
	}
	if fmt.Sprint(sizes) != "[2 2 1]" {
		t.Errorf("asked in batches of %v", sizes)
	}
	if !strings.Contains(e.Model(), v.Model) || e.Model() == v.newEmbedder(s, embedder.Options{Model: "other"}).Model() {
		t.Errorf("the model is %s", e.Model())
	}
}

// testNoTexts checks that no request is sent without texts.
func testNoTexts(t *testing.T, v Vendor, s *Server) {
	if got, err := v.newEmbedder(s, embedder.Options{}).Embed(t.Context(), agentsvc.Payer{}, embedder.Query, nil); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
	if n := len(s.Requests()); n > 0 {
		t.Errorf("%d requests for no text", n)
	}
}

// testDimension checks that unusable vectors are errors.
func testDimension(t *testing.T, v Vendor, s *Server) {
	requireError := func(what string, e embedder.Embedder) {
		t.Helper()
		var vendorErr *embedder.Error
		if _, err := e.Embed(t.Context(), agentsvc.Payer{}, embedder.Query, []string{"x"}); !errors.As(err, &vendorErr) {
			t.Errorf("%s: %v", what, err)
		}
	}
	requireError("vectors of another dimension", v.newEmbedder(s, embedder.Options{Dimension: 5}))
	detects := v.newEmbedder(s, embedder.Options{})
	if _, err := detects.Embed(t.Context(), agentsvc.Payer{}, embedder.Query, []string{"x"}); err != nil {
		t.Fatal(err)
	}
	s.SetEmbedText(func(string) []float32 { return []float32{1} })
	requireError("a dimension that has changed", detects)
	s.SetEmbedText(func(string) []float32 { return nil })
	requireError("an empty vector", v.newEmbedder(s, embedder.Options{}))
	s.SetEmbedText(func(string) []float32 { return []float32{0, 0} })
	requireError("a vector without direction", v.newEmbedder(s, embedder.Options{}))
	long := make([]float32, vectorstore.MaxDimension+1)
	long[0] = 1
	s.SetEmbedText(func(string) []float32 { return long })
	requireError("a vector above the bound", v.newEmbedder(s, embedder.Options{}))
	s.SetEmbedText(func(string) []float32 { return long[:vectorstore.MaxDimension] })
	if _, err := v.newEmbedder(s, embedder.Options{}).Embed(t.Context(), agentsvc.Payer{}, embedder.Query, []string{"x"}); err != nil {
		t.Errorf("a vector of the longest length is refused: %v", err)
	}
}

// testHostileAnswers checks that an answer which cannot be vectors of the texts is refused after a bounded number of bytes, that
// its memory is reserved and returned, and that the first answer decides about the length only if all of it can be used.
func testHostileAnswers(t *testing.T, v Vendor, s *Server) {
	var reserved, most int64
	pool := capacity.NewPool(64<<20, func(n int64) { reserved, most = n, max(most, n) })
	e := v.newEmbedder(s, embedder.Options{Memory: pool.NewReservation("acme", 1)})
	mixed := [][]float32{{1, 2, 3}, {1}}
	s.SetEmbedText(func(text string) []float32 { return mixed[len(text)-1] })
	var vendorErr *embedder.Error
	if _, err := e.Embed(t.Context(), agentsvc.Payer{}, embedder.Query, []string{"a", "bb"}); !errors.As(err, &vendorErr) {
		t.Errorf("vectors of two lengths: %v", err)
	}
	wide := slices.Repeat([]float32{0.12345678}, 65_000)
	s.SetEmbedText(func(string) []float32 { return wide })
	_, err := e.Embed(t.Context(), agentsvc.Payer{}, embedder.Query, []string{"x"})
	if !errors.As(err, &vendorErr) || !strings.Contains(err.Error(), fmt.Sprint(vectorstore.MaxDimension)) {
		t.Errorf("a vector of 65,000 numbers: %v", err)
	}
	if most == 0 || most > 1<<20 || reserved != 0 {
		t.Errorf("%d bytes were reserved at most, and %d remain", most, reserved)
	}
	s.SetEmbedText(LetterVector)
	if _, err := e.Embed(t.Context(), agentsvc.Payer{}, embedder.Query, []string{"x"}); err != nil {
		t.Errorf("a vector of the right length after wrong ones: %v", err)
	}
}

// testHTTPErrors checks the errors for HTTP statuses, and that they do not quote the answer.
func testHTTPErrors(t *testing.T, v Vendor, s *Server) {
	for status, retryable := range map[int]bool{401: false, 400: false, 404: false, 429: true, 500: true, 503: true} {
		s.FailWith(status)
		_, err := v.newEmbedder(s, embedder.Options{}).Embed(t.Context(), agentsvc.Payer{}, embedder.Query, []string{"x"})
		var vendorErr *embedder.Error
		if !errors.As(err, &vendorErr) || vendorErr.Status != status || vendorErr.Retryable != retryable {
			t.Errorf("HTTP %d: %v", status, err)
			continue
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error contains the vendor's text: %v", err)
		}
	}
}

// testTimeout checks that a request ends after Options.Timeout.
func testTimeout(t *testing.T, v Vendor, _ *Server) {
	blockingTransport := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	e := v.New(embedder.Options{Timeout: time.Millisecond, HTTP: &http.Client{Transport: blockingTransport}})
	if _, err := e.Embed(t.Context(), agentsvc.Payer{}, embedder.Query, []string{"x"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// roundTripFunc is a transport without a network.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// LastRequestBody returns the body of the last request.
func (s *Server) LastRequestBody() map[string]any {
	all := s.Requests()
	return all[len(all)-1].Body
}
