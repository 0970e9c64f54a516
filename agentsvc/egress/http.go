package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"
)

const maxRedirects = 3

var (
	errTooManyRedirects = errors.New("more than 3 redirects")
	errScheme           = errors.New("only http and https addresses may be called")
)

// roundTripper refuses what is not http or https, caps the answers and bounds the wait for their headers.
type roundTripper struct {
	next          http.RoundTripper
	maxBytes      int64
	headerTimeout time.Duration
}

func (t *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := checkURL(req.URL); err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	late := time.AfterFunc(t.headerTimeout, func() { cancel(errHeaderTimeout) })
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	late.Stop()
	if cause := context.Cause(ctx); errors.Is(cause, errHeaderTimeout) {
		if err == nil {
			_ = resp.Body.Close()
		}
		return nil, cause
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	resp.Request = req
	if resp.ContentLength > t.maxBytes && req.Method != http.MethodHead {
		_ = resp.Body.Close()
		cancel(nil)
		return nil, &TooLargeError{Max: t.maxBytes}
	}
	if _, upgraded := resp.Body.(io.Writer); !upgraded {
		resp.Body = &cappedBody{ReadCloser: resp.Body, remaining: t.maxBytes, maxBytes: t.maxBytes, cancel: cancel}
	}
	return resp, nil
}

// errHeaderTimeout ends a call whose answer did not begin in time.
var errHeaderTimeout error = headerTimeoutError{}

type headerTimeoutError struct{}

func (headerTimeoutError) Error() string   { return "no header of an answer came in time" }
func (headerTimeoutError) Timeout() bool   { return true }
func (headerTimeoutError) Temporary() bool { return true }

func checkURL(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return errScheme
	}
	if host := u.Hostname(); host == "" || isNumericHost(host) {
		return &NotAllowedError{Host: host}
	}
	return nil
}

// crossHostHeaders are the headers that follow a redirect to another host. Every other one may hold a credential.
var crossHostHeaders = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Content-Encoding": true,
	"Content-Type": true, "User-Agent": true,
}

// checkRedirect has the signature of [http.Client.CheckRedirect]. Once a chain of redirects has left the first
// request's host, what follows carries no credentials, even where it leads back.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return errTooManyRedirects
	}
	if err := checkURL(req.URL); err != nil {
		return err
	}
	changed := changesHost(via[0].URL, req.URL)
	for _, earlier := range via[1:] {
		changed = changed || changesHost(via[0].URL, earlier.URL)
	}
	if changed {
		for name := range req.Header {
			if !crossHostHeaders[name] {
				req.Header.Del(name)
			}
		}
	}
	return nil
}

// changesHost reports whether a step from one address to another goes to another host, or from https to http.
func changesHost(from, to *url.URL) bool {
	return from.Host != to.Host || (from.Scheme == "https" && to.Scheme != "https")
}

// cappedBody is a body that ends in a [*TooLargeError] after max bytes.
type cappedBody struct {
	io.ReadCloser
	remaining, maxBytes int64
	cancel              context.CancelCauseFunc // of the call
}

// Close closes the body and ends the call.
func (c *cappedBody) Close() error {
	err := c.ReadCloser.Close()
	c.cancel(nil)
	return err
}

func (c *cappedBody) Read(p []byte) (int, error) {
	if int64(len(p))-1 > c.remaining {
		p = p[:c.remaining+1]
	}
	n, err := c.ReadCloser.Read(p)
	if int64(n) > c.remaining {
		n = int(c.remaining)
		c.remaining = 0
		return n, &TooLargeError{Max: c.maxBytes}
	}
	c.remaining -= int64(n)
	return n, err
}
