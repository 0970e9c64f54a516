package remote

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"stoa/agentsvc/egress"
	"stoa/agentsvc/vectorstore"
)

// repeatUnavailable calls send until it succeeds, fails otherwise than with an UnavailableError, or was called maxTries
// times. All calls together end after timeout. Every request of a store may be repeated: an upsert replaces, a delete
// ignores what is missing.
func repeatUnavailable(ctx context.Context, store string, timeout time.Duration, send func(context.Context) error) error {
	attempts, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	delays := backoff.NewExponentialBackOff()
	delays.InitialInterval, delays.MaxInterval = 100*time.Millisecond, time.Second
	var last error
	_, err := backoff.Retry(attempts, func() (struct{}, error) {
		last = send(attempts)
		if _, ok := errors.AsType[*vectorstore.UnavailableError](last); last != nil && !ok {
			return struct{}{}, backoff.Permanent(last)
		}
		return struct{}{}, last
	}, backoff.WithBackOff(delays), backoff.WithMaxTries(maxTries))
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case last == nil || attempts.Err() != nil:
		return &vectorstore.UnavailableError{Store: store, Message: "no answer in time", Err: context.DeadlineExceeded}
	}
	return last
}

// newConnectionError returns the error for a request that got no answer. An address that may not be called stays so.
func newConnectionError(store string, err error) error {
	_, refused := errors.AsType[*egress.NotAllowedError](err)
	_, large := errors.AsType[*egress.TooLargeError](err)
	if refused || large {
		return &vectorstore.RejectedError{Store: store, Message: "cannot be used: " + egress.PublicMessage(err), Err: err}
	}
	return &vectorstore.UnavailableError{Store: store, Message: egress.PublicMessage(err), Err: err}
}
