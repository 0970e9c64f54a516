package indexing

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/document/source"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/vectorstore"
	"stoa/tenancy/db"
)

// Retry says how often a document, or a pass that what all documents need has ended, is tried again, and when.
type Retry struct {
	MaxRetries          int
	BaseDelay, MaxDelay time.Duration
}

// maxRetryAfter bounds the time that an upstream may demand until the next attempt: an upstream that demands more is
// asked once an hour.
const maxRetryAfter = time.Hour

// delay returns the time until the attempt after n failed ones: it doubles with each of them and has jitter, so that
// what failed together is not repeated together. It is at least after, what the upstream demands.
func (r Retry) delay(n int, after time.Duration) time.Duration {
	d := r.MaxDelay
	if n < 30 {
		d = min(r.BaseDelay<<max(n-1, 0), r.MaxDelay)
	}
	if d > 1 {
		d = d/2 + rand.N(d/2+1)
	}
	return max(d, min(after, maxRetryAfter))
}

// step is a step of a document's indexing, as spans, metrics and reasons name it.
type step string

// The steps of a document, in their order.
const (
	stepRead    step = "read"
	stepExtract step = "extract"
	stepChunk   step = "chunk"
	stepEmbed   step = "embed"
	stepStore   step = "store" // vectors in an external store
	stepCommit  step = "commit"
)

// stepReasons are what an uploader reads about a step that failed with an error whose text is internal.
var stepReasons = map[step]string{
	stepRead:    "the document could not be read from its source",
	stepExtract: "the text of the document could not be read",
	stepChunk:   "the document could not be divided into chunks",
	stepEmbed:   "the embedder did not answer",
	stepStore:   "the vector store did not answer",
	stepCommit:  "the document could not be written to the database",
}

// stepError is the error of a step.
type stepError struct {
	step step
	err  error
}

// Error implements error. The text is for the log.
func (e *stepError) Error() string { return string(e.step) + ": " + e.err.Error() }

// Unwrap returns the cause.
func (e *stepError) Unwrap() error { return e.err }

// consequence is what an error means for a document and its pass.
type consequence int

const (
	// endsPass: the lease is lost, or the process or the app stops. Nothing may be written any more.
	endsPass consequence = iota
	// failsDocument: another attempt would end in the same way.
	failsDocument
	// retriesDocument: the document is tried again, and has failed after its retries.
	retriesDocument
	// doubtful: what all documents need did not answer for this one. If it answers for others, the document is to blame.
	doubtful
	// holdsPass: what all documents need refuses. They wait, and no document is to blame.
	holdsPass
)

// failure is an error with its consequence.
type failure struct {
	consequence consequence
	// reason is for the uploader, without internal text.
	reason string
	// retryAfter is what the upstream demands, 0 if it demands nothing.
	retryAfter time.Duration
	err        error
}

// newFailure returns the consequence of the error of a document's step.
func newFailure(err error) failure {
	f := failure{consequence: retriesDocument, reason: "the document could not be indexed", err: err}
	var at *stepError
	if errors.As(err, &at) {
		f.reason = stepReasons[at.step]
	} else {
		at = &stepError{}
	}
	var refused *agentsvc.Error
	var vendor *embedder.Error
	var request *embedder.RequestError
	var origin *source.Error
	var index *vectorstore.UnavailableError
	var rejected *vectorstore.RejectedError
	hasText := errors.As(err, &refused)
	if hasText {
		f.reason, f.retryAfter = refused.Message, refused.RetryAfter
	}
	if errors.As(err, &vendor) {
		f.reason, f.retryAfter = vendor.Error(), vendor.RetryAfter
	}
	if errors.As(err, &origin) {
		f.reason, f.retryAfter = origin.Message, origin.RetryAfter
	}
	if errors.As(err, &index) {
		f.reason = index.Error()
	}
	if errors.As(err, &rejected) {
		f.reason = rejected.Error()
	}
	switch {
	case errors.Is(err, errFault):
		f.consequence, f.reason = failsDocument, faultReason
	case errors.Is(err, corpus.ErrPassLost), errors.Is(err, errStopped), errors.Is(err, context.Canceled):
		f.consequence = endsPass
	case at.step == stepStore:
		f.consequence = doubtful
	// What db.IsUnavailable recognizes includes each refused connection, also one to the embedder.
	case errors.As(err, &request):
		f.consequence = doubtful
		if !hasText {
			f.reason = "the embedder (" + request.Vendor + ") did not answer"
		}
	case db.IsUnavailable(err), db.IsOutage(err):
		f.consequence, f.reason = holdsPass, "the database did not answer"
	case at.step == stepEmbed:
		f.consequence = embedConsequence(err, vendor)
	case hasText && isFinal(refused.Code), source.IsPermanent(err):
		f.consequence = failsDocument
	}
	return f
}

// embedConsequence returns the consequence of an error of the embedder; vendor is nil if it is not the vendor's.
func embedConsequence(err error, vendor *embedder.Error) consequence {
	switch {
	case errors.Is(err, agentsvc.CodeExhausted): // a budget
		return holdsPass
	case errors.Is(err, agentsvc.CodeTooLarge): // its vectors are more than the app may have in memory
		return failsDocument
	case vendor == nil: // the network
		return doubtful
	case vendor.Status == http.StatusTooManyRequests, vendor.Status == http.StatusUnauthorized, vendor.Status == http.StatusForbidden, vendor.Status == http.StatusNotFound:
		return holdsPass
	case vendor.Retryable:
		return doubtful
	case vendor.Status >= 400: // it refuses these texts
		return failsDocument
	}
	return retriesDocument // an answer that cannot be used, such as too few vectors
}

// isFinal reports whether an error with this code is the same at the next attempt.
func isFinal(c agentsvc.Code) bool {
	switch c {
	case agentsvc.CodeInvalid, agentsvc.CodeTooLarge, agentsvc.CodeExhausted, agentsvc.CodeDenied, agentsvc.CodeNotFound:
		return true
	}
	return false
}
