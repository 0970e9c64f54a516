package indexing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/document/source"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/vectorstore"
)

// TestConsequences checks what the errors of each step mean: a fault of one document never holds the others, and what
// none of them can do without never fails a document.
func TestConsequences(t *testing.T) {
	t.Parallel()
	internal := errors.New("dial tcp 10.0.0.1: refused")
	for _, c := range []struct {
		name       string
		step       step
		err        error
		want       consequence
		reason     string
		retryAfter time.Duration
	}{
		{"lost lease", stepCommit, corpus.ErrPassLost, endsPass, corpus.ErrPassLost.Error(), 0},
		{"stopped", stepEmbed, errStopped, endsPass, "the embedder did not answer", 0},
		{"cancelled", stepRead, context.Canceled, endsPass, "the document could not be read from its source", 0},
		{"encrypted file", stepExtract, agentsvc.NewError(agentsvc.CodeInvalid, "the file is encrypted"), failsDocument, "the file is encrypted", 0},
		{"crash of the reader", stepExtract, internal, retriesDocument, "the text of the document could not be read", 0},
		{"source away", stepRead, internal, retriesDocument, "the document could not be read from its source", 0},
		{"network", stepEmbed, internal, doubtful, "the embedder did not answer", 0},
		{"refused connection", stepEmbed, &embedder.RequestError{Vendor: "x", Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}, doubtful, "the embedder (x) did not answer", 0},
		{"address refused", stepEmbed, &embedder.RequestError{Vendor: "x", Err: agentsvc.NewError(agentsvc.CodeDenied, "10.0.0.1 is a private address")}, doubtful, "10.0.0.1 is a private address", 0},
		{"database away", stepCommit, &net.OpError{Op: "dial", Err: errors.New("refused")}, holdsPass, "the database did not answer", 0},
		{"too many requests", stepEmbed, &embedder.Error{Vendor: "x", Status: 429, Message: "is asked too often", Retryable: true, RetryAfter: time.Minute}, holdsPass,
			"the embedder (x) is asked too often", time.Minute},
		{"wrong key", stepEmbed, &embedder.Error{Vendor: "x", Status: 401, Message: "refused the API key"}, holdsPass, "the embedder (x) refused the API key", 0},
		{"text too long", stepEmbed, &embedder.Error{Vendor: "x", Status: 400, Message: "answered with HTTP 400"}, failsDocument, "the embedder (x) answered with HTTP 400", 0},
		{"wrong count", stepEmbed, &embedder.Error{Vendor: "x", Message: "answered with 1 vectors for 2 texts"}, retriesDocument, "the embedder (x) answered with 1 vectors for 2 texts", 0},
		{"budget", stepEmbed, (&agentsvc.ExhaustedBudget{Budget: "month", Scope: "app"}).NewError(), holdsPass, "the budget month (app) is used up", 0},
		{"vector store away", stepStore, internal, doubtful, "the vector store did not answer", 0},
		{"vector store refuses", stepStore, &vectorstore.RejectedError{Store: "qdrant", Message: "refused the key"}, doubtful, "the vector store (qdrant) refused the key", 0},
		{"embedder breaks", stepEmbed, &embedder.Error{Vendor: "x", Status: 500, Message: "answered with HTTP 500", Retryable: true}, doubtful, "the embedder (x) answered with HTTP 500", 0},
		{"row gone", stepRead, source.PermanentErrorf("the row is gone"), failsDocument, "the row is gone", 0},
		{"page slow", stepRead, &source.Error{Message: "the address is slow", RetryAfter: time.Second}, retriesDocument, "the address is slow", time.Second},
		{"limit of chunks", stepCommit, agentsvc.NewError(agentsvc.CodeExhausted, "the store has 100000 chunks"), failsDocument, "the store has 100000 chunks", 0},
	} {
		got := newFailure(fmt.Errorf("index a: %w", &stepError{c.step, c.err}))
		if got.consequence != c.want || got.reason != c.reason || got.retryAfter != c.retryAfter {
			t.Errorf("%s: got %d, %q, %s; want %d, %q, %s", c.name, got.consequence, got.reason, got.retryAfter, c.want, c.reason, c.retryAfter)
		}
	}
}

// TestDelay checks that the wait doubles up to its bound, has jitter, and is at least what an upstream demands.
func TestDelay(t *testing.T) {
	t.Parallel()
	r := Retry{MaxRetries: 3, BaseDelay: time.Second, MaxDelay: 10 * time.Second}
	for _, c := range []struct {
		n         int
		after     time.Duration
		low, high time.Duration
	}{
		{1, 0, 500 * time.Millisecond, time.Second},
		{2, 0, time.Second, 2 * time.Second},
		{5, 0, 5 * time.Second, 10 * time.Second},
		{100, 0, 5 * time.Second, 10 * time.Second},
		{1, time.Minute, time.Minute, time.Minute},
		{1, 1000 * time.Hour, maxRetryAfter, maxRetryAfter},
		{0, 0, 500 * time.Millisecond, time.Second},
	} {
		for range 100 {
			if d := r.delay(c.n, c.after); d < c.low || d > c.high {
				t.Errorf("after %d failures and a demand of %s: %s, want %s to %s", c.n, c.after, d, c.low, c.high)
				break
			}
		}
	}
	if d := (Retry{}).delay(1, 0); d != 0 {
		t.Errorf("without delays: %s", d)
	}
}
