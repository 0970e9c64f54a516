package embeddertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/embedder"
)

// Vendor is what the suite knows of a vendor's embedder.
type Vendor struct {
	New   func(o embedder.Options) embedder.Embedder
	Path  string // that it asks
	Model string // that it uses where none is named
}

// Run holds a vendor's embedder to what [embedder.Embedder] promises.
func Run(t *testing.T, v Vendor) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, v Vendor, s *Server)
	}{
		{"batches", batches}, {"nothing", nothing}, {"dimension", dimension}, {"refusals", refusals}, {"timeout", timeout},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, v, New(t)) })
	}
}

// on makes an embedder that asks s.
func (v Vendor) on(s *Server, o embedder.Options) embedder.Embedder {
	o.BaseURL, o.HTTP = s.URL, s.Client()
	return v.New(o)
}

func batches(t *testing.T, v Vendor, s *Server) {
	e := v.on(s, embedder.Options{APIKey: "key", BatchSize: 2})
	texts := []string{"one", "two", "three", "four", "five"}
	got, err := e.Embed(t.Context(), embedder.Document, texts)
	if err != nil || len(got) != len(texts) {
		t.Fatal(got, err)
	}
	for i, text := range texts {
		if fmt.Sprint(got[i]) != fmt.Sprint(Letters(text)) {
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
	if !strings.Contains(e.Model(), v.Model) || e.Model() == v.on(s, embedder.Options{Model: "other"}).Model() {
		t.Errorf("the model is %s", e.Model())
	}
}

func nothing(t *testing.T, v Vendor, s *Server) {
	if got, err := v.on(s, embedder.Options{}).Embed(t.Context(), embedder.Query, nil); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
	if n := len(s.Requests()); n > 0 {
		t.Errorf("%d requests for no text", n)
	}
}

func dimension(t *testing.T, v Vendor, s *Server) {
	refused := func(what string, e embedder.Embedder) {
		t.Helper()
		var blame *embedder.Error
		if _, err := e.Embed(t.Context(), embedder.Query, []string{"x"}); !errors.As(err, &blame) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("vectors of another dimension", v.on(s, embedder.Options{Dimension: 5}))
	detects := v.on(s, embedder.Options{})
	if _, err := detects.Embed(t.Context(), embedder.Query, []string{"x"}); err != nil {
		t.Fatal(err)
	}
	s.Vector(func(string) []float32 { return []float32{1} })
	refused("a dimension that has changed", detects)
	s.Vector(func(string) []float32 { return nil })
	refused("an empty vector", v.on(s, embedder.Options{}))
	s.Vector(func(string) []float32 { return []float32{0, 0} })
	refused("a vector without direction", v.on(s, embedder.Options{}))
}

func refusals(t *testing.T, v Vendor, s *Server) {
	for status, retryable := range map[int]bool{401: false, 400: false, 404: false, 429: true, 500: true, 503: true} {
		s.Fail(status)
		_, err := v.on(s, embedder.Options{}).Embed(t.Context(), embedder.Query, []string{"x"})
		var blame *embedder.Error
		if !errors.As(err, &blame) || blame.Status != status || blame.Retryable != retryable {
			t.Errorf("HTTP %d: %v", status, err)
			continue
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error tells what the vendor said: %v", err)
		}
	}
}

func timeout(t *testing.T, v Vendor, _ *Server) {
	waits := roundTripper(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	e := v.New(embedder.Options{Timeout: time.Millisecond, HTTP: &http.Client{Transport: waits}})
	if _, err := e.Embed(t.Context(), embedder.Query, []string{"x"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Last returns the body of the last request.
func (s *Server) Last() map[string]any {
	all := s.Requests()
	return all[len(all)-1].Body
}
