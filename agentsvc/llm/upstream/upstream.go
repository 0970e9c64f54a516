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

// FirstWord bounds the wait for the first word of an answer where nothing else is said: some models think before they
// say anything, and some servers load the model first. It is as long as vendors' own clients wait.
const FirstWord = 10 * time.Minute

// whole bounds the time that an answer is waited for from its request to its end where nothing else is said: a server that
// always sends one more piece in time would never end it.
const whole = 20 * time.Minute

// idle bounds the wait for the next piece of an answer where nothing else is said.
const idle = time.Minute

// Vendor is what tells one vendor's protocol from another's. The zero value of a field means the usual.
type Vendor struct {
	// Name is how errors and usage call the provider.
	Name string
	// First bounds the wait for each piece up to the first word of an answer, [FirstWord] if zero.
	First time.Duration
	// Idle bounds the wait for the next piece of an answer from there on, 60 s if zero.
	Idle time.Duration
	// Whole bounds the time that an answer is waited for from its request to its end, 20 min if zero.
	Whole time.Duration
	// Last is the line that ends an answer, blanks aside; empty where only the end of the body does.
	Last string
	// Lines says that each line is an event. Else events are server-sent ones, which an empty line ends.
	Lines bool
	// Quiet lets a body that cannot be read any further simply end. The vendor's client would write the error to the
	// process's log.
	Quiet bool
	// Explain adds to an error, whose reason follows from the status, what the vendor's codes in the body say.
	// It takes no text from the body: that may hold prompts and keys.
	Explain func(e *llm.Error, body []byte)
	// Dress changes a request just before it goes out.
	Dress func(req *http.Request)
}

// Stream makes one call and yields what it comes to as [llm.Provider] promises. Events makes the call with the context
// it is given; each of its items is what one event of the answer came to, and an error is the last. Its errors may be
// anything: Stream puts them into words that a caller may read.
func (v Vendor) Stream(ctx context.Context, events func(ctx context.Context) iter.Seq2[[]llm.Chunk, error]) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		err := v.read(ctx, events, func(c llm.Chunk) bool { return yield(c, nil) })
		switch {
		case err == nil, errors.Is(err, errStopped):
		case ctx.Err() != nil:
			yield(llm.Chunk{}, ctx.Err())
		default:
			yield(llm.Chunk{}, v.failure(err))
		}
	}
}

// read passes on what events yields. It returns errStopped where yield wants no more.
func (v Vendor) read(ctx context.Context, events func(context.Context) iter.Seq2[[]llm.Chunk, error], yield func(llm.Chunk) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wait := cmp.Or(v.First, FirstWord)
	// The timers run only while the model is waited for, not while the reader is.
	timer := time.AfterFunc(wait, func() { cancel(errIdle) })
	defer timer.Stop()
	late := &lateError{cmp.Or(v.Whole, whole)}
	left, since := late.limit, time.Now()
	end := time.AfterFunc(left, func() { cancel(late) })
	defer end.Stop()

	var broken error
	if v.Quiet {
		ctx = context.WithValue(ctx, brokenKey{}, &broken)
	}
	for chunks, err := range events(ctx) {
		timer.Stop()
		end.Stop()
		left -= time.Since(since)
		if err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, errIdle) || errors.Is(cause, late) {
				return cause
			}
			return cmp.Or(broken, err)
		}
		if len(chunks) > 0 {
			wait = cmp.Or(v.Idle, idle)
		}
		for _, c := range chunks {
			if !yield(c) {
				return errStopped
			}
		}
		timer.Reset(wait)
		end.Reset(left)
		since = time.Now()
	}
	return nil
}

// brokenKey is where the context of a quiet call holds a pointer to what broke its body off.
type brokenKey struct{}

// CheckURL returns an [agentsvc.InvalidError] for a base URL that is none.
func CheckURL(base string) error {
	if u, err := url.Parse(base); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return agentsvc.Invalid("base_url", "is no http or https URL")
	}
	return nil
}
