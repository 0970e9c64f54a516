// Package upstream is what the vendors' providers have in common. A vendor describes its protocol by a [Vendor] and
// implements llm.Provider with it:
//
//   - [Vendor.NewClient] returns the HTTP client for the vendor's library: it checks the lease before each request,
//     turns other statuses than 200 into an llm.Error and bounds the size of events.
//   - [Vendor.Stream] runs a call, bounds the waits for the answer and makes all errors fit for callers.
//   - [AnswerBuilder] assembles the answer from the decoded events, within bounds.
//
// A model's server may be a tenant's own, so everything it sends is bounded and nothing of its error texts is passed
// on.
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
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/llm"
)

// DefaultFirstTimeout bounds the wait for the first piece of an answer where none is configured. Some models think
// before they answer, and some servers load the model first; vendors' own clients wait as long.
const DefaultFirstTimeout = 10 * time.Minute

// defaultTotalTimeout bounds the time from the request to the end of its answer where none is configured. Without it, a
// server that sends one piece just in time, again and again, would never end the call.
const defaultTotalTimeout = 20 * time.Minute

// defaultIdleTimeout bounds the wait for the next piece of an answer where none is configured.
const defaultIdleTimeout = time.Minute

// Vendor describes how one vendor's protocol differs from others. It is read-only once a provider has it.
type Vendor struct {
	// Name is the provider's name in errors and usage.
	Name string
	// FirstTimeout bounds the wait for each event up to the first one with content, 0 = [DefaultFirstTimeout].
	FirstTimeout time.Duration
	// IdleTimeout bounds the wait for each later event, 0 = 60 s.
	IdleTimeout time.Duration
	// TotalTimeout bounds the sum of all waits of a call, 0 = 20 min. The time that the reader takes does not count.
	TotalTimeout time.Duration
	// EndMarker is the line that ends an answer, without blanks; "" if only the end of the body does. After it the
	// connection can be reused, see eventBody.Close.
	EndMarker string
	// LineDelimited reports that each line is an event. Otherwise events are server-sent events, ended by an empty
	// line.
	LineDelimited bool
	// EndOnReadError makes a body that fails end normally and keeps its error aside. It is for a vendor library that
	// would write the error to the process's log.
	EndOnReadError bool
	// RefineError adds to an error, whose reason follows from the status, what the vendor's codes in the body mean. It
	// must not copy text of the body, which may hold prompts and keys.
	RefineError func(e *llm.Error, body []byte)
	// PrepareRequest changes a request just before it is sent.
	PrepareRequest func(req *http.Request)
}

// Stream makes the call of req and yields its outcome as [llm.Provider] requires. events makes the call with the
// context it is given; each of its items is the chunks of one event, possibly none, and an error is its last item.
// Stream translates that error into one for callers.
func (v Vendor) Stream(ctx context.Context, req llm.Request, events func(ctx context.Context) iter.Seq2[[]llm.Chunk, error]) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		err := v.readEvents(ctx, req, events, func(c llm.Chunk) bool { return yield(c, nil) })
		switch {
		case err == nil, errors.Is(err, errReaderStopped):
		case ctx.Err() != nil:
			yield(llm.Chunk{}, ctx.Err())
		default:
			yield(llm.Chunk{}, v.publicError(err))
		}
	}
}

// readEvents yields the chunks of events and enforces the timeouts. It returns errReaderStopped if yield returned
// false.
func (v Vendor) readEvents(ctx context.Context, req llm.Request, events func(context.Context) iter.Seq2[[]llm.Chunk, error], yield func(llm.Chunk) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	firstTimeout := cmp.Or(v.FirstTimeout, DefaultFirstTimeout)
	wait := min(firstTimeout, req.Attempts.TimeLeft())
	answered := false
	// The timers run only while the model is waited for, not while the reader processes a chunk: a slow reader is not
	// the model's failure.
	timer := time.AfterFunc(wait, func() { cancel(errIdleTimeout) })
	defer timer.Stop()
	timeoutErr := &answerTimeoutError{cmp.Or(v.TotalTimeout, defaultTotalTimeout)}
	// remaining is what is left of the total; since is when the present wait began.
	remaining, since := timeoutErr.limit, time.Now()
	totalTimer := time.AfterFunc(remaining, func() { cancel(timeoutErr) })
	defer totalTimer.Stop()

	call := &transportCall{lease: req.Lease, memory: req.Memory}
	ctx = context.WithValue(ctx, transportCallKey{}, call)
	for chunks, err := range events(ctx) {
		timer.Stop()
		totalTimer.Stop()
		remaining -= time.Since(since)
		if err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, errIdleTimeout) || errors.Is(cause, timeoutErr) {
				return cause
			}
			return cmp.Or(call.bodyErr, err)
		}
		answered = answered || len(chunks) > 0
		if answered {
			wait = cmp.Or(v.IdleTimeout, defaultIdleTimeout)
		} else {
			wait = min(firstTimeout, req.Attempts.TimeLeft())
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

// transportCall is what Stream and the transport of the vendor's client share for one call. It is in the context,
// because the vendors' libraries pass nothing else of a call on to their HTTP client.
type transportCall struct {
	// lease and memory are those of the request, then read-only. vendorTransport.RoundTrip checks the lease.
	lease  agentsvc.LeaseCheck
	memory *capacity.MemoryReservation
	// bodyErr is the error that ended the body, see Vendor.EndOnReadError. It is written and read by the goroutine that
	// reads the body.
	bodyErr error
}

// transportCallKey is the context key of a *transportCall. The vendor's client library stands between the call and the
// RoundTripper and passes on nothing but the context.
type transportCallKey struct{}

// CheckBaseURL returns an error with [agentsvc.CodeInvalid] if base is not an absolute http or https URL.
func CheckBaseURL(base string) error {
	if u, err := url.Parse(base); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return agentsvc.NewInvalidError("base_url", "is no http or https URL")
	}
	return nil
}
