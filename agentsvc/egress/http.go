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
	errRedirects = errors.New("more than 3 redirects")
	errScheme    = errors.New("only http and https addresses may be called")
)

// roundTripper refuses what is not http or https, caps the answers and bounds the wait for their headers.
type roundTripper struct {
	next http.RoundTripper
	max  int64
	wait time.Duration
}

func (t *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := checkURL(req.URL); err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	late := time.AfterFunc(t.wait, func() { cancel(errHeader) })
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	late.Stop()
	if cause := context.Cause(ctx); errors.Is(cause, errHeader) {
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
	if resp.ContentLength > t.max && req.Method != http.MethodHead {
		_ = resp.Body.Close()
		cancel(nil)
		return nil, &TooLargeError{Max: t.max}
	}
	if _, upgraded := resp.Body.(io.Writer); !upgraded {
		resp.Body = &capped{ReadCloser: resp.Body, left: t.max, max: t.max, over: cancel}
	}
	return resp, nil
}

// errHeader ends a call whose answer did not begin in time.
var errHeader error = headerError{}

type headerError struct{}

func (headerError) Error() string   { return "no header of an answer came in time" }
func (headerError) Timeout() bool   { return true }
func (headerError) Temporary() bool { return true }

func checkURL(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return errScheme
	}
	if host := u.Hostname(); host == "" || oddNumber(host) {
		return &NotAllowedError{Host: host}
	}
	return nil
}

// portable are the headers that follow a redirect to another host. Every other one may hold a credential.
var portable = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Content-Encoding": true,
	"Content-Type": true, "User-Agent": true,
}

// checkRedirect has the signature of [http.Client.CheckRedirect]. Once a chain of redirects has left the first
// request's host, what follows carries no credentials, even where it leads back.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return errRedirects
	}
	if err := checkURL(req.URL); err != nil {
		return err
	}
	left := leaves(via[0].URL, req.URL)
	for _, earlier := range via[1:] {
		left = left || leaves(via[0].URL, earlier.URL)
	}
	if left {
		for name := range req.Header {
			if !portable[name] {
				req.Header.Del(name)
			}
		}
	}
	return nil
}

// leaves reports whether a step from one address to another goes to another host, or from https to http.
func leaves(from, to *url.URL) bool {
	return from.Host != to.Host || (from.Scheme == "https" && to.Scheme != "https")
}

// capped is a body that ends in a [*TooLargeError] after max bytes.
type capped struct {
	io.ReadCloser
	left, max int64
	over      context.CancelCauseFunc // of the call
}

// Close closes the body and ends the call.
func (c *capped) Close() error {
	err := c.ReadCloser.Close()
	c.over(nil)
	return err
}

func (c *capped) Read(p []byte) (int, error) {
	if int64(len(p))-1 > c.left {
		p = p[:c.left+1]
	}
	n, err := c.ReadCloser.Read(p)
	if int64(n) > c.left {
		n = int(c.left)
		c.left = 0
		return n, &TooLargeError{Max: c.max}
	}
	c.left -= int64(n)
	return n, err
}
