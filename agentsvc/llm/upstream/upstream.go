// Package upstream is what all vendors of models have in common: a way out that lets in only what can be an answer,
// the wait for its next piece, the putting together of tool calls, and words for what went wrong. Everything a server
// sends is held to a bound, whatever the server is.
package upstream

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

// DefaultFirstTimeout bounds the wait for the first word of an answer where nothing else is said: some models think before they
// say anything, and some servers load the model first. It is as long as vendors' own clients wait.
const DefaultFirstTimeout = 10 * time.Minute

// defaultTotalTimeout bounds the time that an answer is waited for from its request to its end where nothing else is said: a server that
// always sends one more piece in time would never end it.
const defaultTotalTimeout = 20 * time.Minute

// defaultIdleTimeout bounds the wait for the next piece of an answer where nothing else is said.
const defaultIdleTimeout = time.Minute

// Vendor is what tells one vendor's protocol from another's. The zero value of a field means the usual.
type Vendor struct {
	// Name is how errors and usage call the provider.
	Name string
	// FirstTimeout bounds the wait for each piece up to the first word of an answer, [DefaultFirstTimeout] if zero.
	FirstTimeout time.Duration
	// IdleTimeout bounds the wait for the next piece of an answer from there on, 60 s if zero.
	IdleTimeout time.Duration
	// TotalTimeout bounds the time that an answer is waited for from its request to its end, 20 min if zero.
	TotalTimeout time.Duration
	// EndMarker is the line that ends an answer, blanks aside; empty where only the end of the body does.
	EndMarker string
	// LineDelimited says that each line is an event. Else events are server-sent ones, which an empty line ends.
	LineDelimited bool
	// EndOnReadError lets a body that cannot be read any further simply end. The vendor's client would write the error to the
	// process's log.
	EndOnReadError bool
	// RefineError adds to an error, whose reason follows from the status, what the vendor's codes in the body say.
	// It takes no text from the body: that may hold prompts and keys.
	RefineError func(e *llm.Error, body []byte)
	// PrepareRequest changes a request just before it goes out.
	PrepareRequest func(req *http.Request)
}

// Stream makes one call and yields what it comes to as [llm.Provider] promises. Events makes the call with the context
// it is given; each of its items is what one event of the answer came to, and an error is the last. Its errors may be
// anything: Stream puts them into words that a caller may read.
func (v Vendor) Stream(ctx context.Context, events func(ctx context.Context) iter.Seq2[[]llm.Chunk, error]) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		err := v.readEvents(ctx, events, func(c llm.Chunk) bool { return yield(c, nil) })
		switch {
		case err == nil, errors.Is(err, errReaderStopped):
		case ctx.Err() != nil:
			yield(llm.Chunk{}, ctx.Err())
		default:
			yield(llm.Chunk{}, v.publicError(err))
		}
	}
}

// readEvents passes on what events yields. It returns errReaderStopped where yield wants no more.
func (v Vendor) readEvents(ctx context.Context, events func(context.Context) iter.Seq2[[]llm.Chunk, error], yield func(llm.Chunk) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wait := cmp.Or(v.FirstTimeout, DefaultFirstTimeout)
	// The timers run only while the model is waited for, not while the reader is.
	timer := time.AfterFunc(wait, func() { cancel(errIdleTimeout) })
	defer timer.Stop()
	late := &answerTimeoutError{cmp.Or(v.TotalTimeout, defaultTotalTimeout)}
	remaining, since := late.limit, time.Now()
	totalTimer := time.AfterFunc(remaining, func() { cancel(late) })
	defer totalTimer.Stop()

	var bodyErr error
	if v.EndOnReadError {
		ctx = context.WithValue(ctx, bodyErrKey{}, &bodyErr)
	}
	for chunks, err := range events(ctx) {
		timer.Stop()
		totalTimer.Stop()
		remaining -= time.Since(since)
		if err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, errIdleTimeout) || errors.Is(cause, late) {
				return cause
			}
			return cmp.Or(bodyErr, err)
		}
		if len(chunks) > 0 {
			wait = cmp.Or(v.IdleTimeout, defaultIdleTimeout)
		}
		for _, c := range chunks {
			if !yield(c) {
				return errReaderStopped
			}
		}
		timer.Reset(wait)
		totalTimer.Reset(remaining)
		since = time.Now()
	}
	return nil
}

// bodyErrKey is where the context of a quiet call holds a pointer to what broke its body off.
type bodyErrKey struct{}

// CheckBaseURL returns an [agentsvc.InvalidError] for a base URL that is none.
func CheckBaseURL(base string) error {
	if u, err := url.Parse(base); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return agentsvc.NewInvalidError("base_url", "is no http or https URL")
	}
	return nil
}
