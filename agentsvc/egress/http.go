package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"
)

// maxRedirects is the number of redirects that a call follows. errTooManyRedirects repeats it in its text.
const maxRedirects = 3

// Errors of a URL or of a chain of redirects. Their text may be shown to the caller (PublicMessage).
var (
	errTooManyRedirects = errors.New("more than 3 redirects")
	errScheme           = errors.New("only http and https addresses may be called")
)

// UserAgent is the User-Agent of outgoing requests that name none: all that servers learn about the client.
const UserAgent = "stoa"

// roundTripper checks the URL of each request, bounds the time until the response's header and the size of its body.
// It runs once for each redirect, with the request of that step.
type roundTripper struct {
	next     http.RoundTripper
	maxBytes int64 // of the body, after decompression
	// from the call of RoundTrip, resolving and connecting included
	headerTimeout time.Duration // counted from the beginning of RoundTrip
}

// RoundTrip implements [http.RoundTripper]. The context that it gives to the transport lives until the body is closed
// (cappedBody.Close): cancelling it when the header has arrived would end the body, too. The transport's own
// ResponseHeaderTimeout is not used because it cannot differ between two clients on the same connections.
func (t *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	// http.RoundTripper must close the request's body, also on an error.
	if err := checkURL(req.URL); err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	headerTimer := time.AfterFunc(t.headerTimeout, func() { cancel(errHeaderTimeout) })
	sent := req.WithContext(ctx)
	if _, named := req.Header["User-Agent"]; !named {
		sent.Header = req.Header.Clone()
		sent.Header.Set("User-Agent", UserAgent)
	}
	resp, err := t.next.RoundTrip(sent)
	headerTimer.Stop()
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
	// The caller sees its own request and context, not the copy with the header's timer.
	resp.Request = req
	if resp.ContentLength > t.maxBytes && req.Method != http.MethodHead {
		_ = resp.Body.Close()
		cancel(nil)
		return nil, &TooLargeError{Max: t.maxBytes}
	}
	// A body that is also a writer is a connection that was upgraded (status 101): it has no end and must stay
	// writable.
	if _, upgraded := resp.Body.(io.Writer); !upgraded {
		resp.Body = &cappedBody{ReadCloser: resp.Body, remaining: t.maxBytes, maxBytes: t.maxBytes, cancel: cancel}
	}
	return resp, nil
}

// errHeaderTimeout is the cause that ends a call whose header did not arrive in time. It is a net.Error with Timeout
// true, so that callers treat it like any other timeout.
var errHeaderTimeout error = headerTimeoutError{}

// headerTimeoutError implements net.Error.
type headerTimeoutError struct{}

func (headerTimeoutError) Error() string   { return "no response header arrived in time" }
func (headerTimeoutError) Timeout() bool   { return true }
func (headerTimeoutError) Temporary() bool { return true }

// checkURL returns errScheme for a scheme other than http and https, and a [*NotAllowedError] for an empty or numeric
// host.
func checkURL(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return errScheme
	}
	if host := u.Hostname(); host == "" || isNumericHost(host) {
		return &NotAllowedError{Host: host}
	}
	return nil
}

// crossHostHeaders are the headers that follow a redirect to another host. Any other header is removed, because it
// may contain a credential (an API key has no standard header).
var crossHostHeaders = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Content-Encoding": true,
	"Content-Type": true, "User-Agent": true,
}

// checkRedirect is the [http.Client.CheckRedirect] of a client. Once a chain of redirects has left the first
// request's host, the later requests have no credentials, even if the chain returns to that host: the intermediate
// host chose that request.
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

// changesHost reports whether a redirect leads to another host or port, or from https to http.
func changesHost(from, to *url.URL) bool {
	return from.Host != to.Host || (from.Scheme == "https" && to.Scheme != "https")
}

// cappedBody is a response's body that ends in a [*TooLargeError] after maxBytes bytes. Like any body it is read by
// one goroutine.
type cappedBody struct {
	io.ReadCloser
	remaining, maxBytes int64                   // bytes
	cancel              context.CancelCauseFunc // of the call's context
}

// Close closes the body and cancels the call's context, which releases its timer and connection.
func (c *cappedBody) Close() error {
	err := c.ReadCloser.Close()
	c.cancel(nil)
	return err
}

// Read implements [io.Reader]. It asks for one byte more than may come, because only that byte distinguishes a body
// of exactly maxBytes bytes from a longer one.
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
