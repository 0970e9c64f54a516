package upstream

import (
	"net/http"
	"strings"

	"stoa/agentsvc"
)

// userAgent is all that servers learn of who calls.
const userAgent = "stoa"

// Client returns a client that calls through out, each time only if the call is still to be made here ([agentsvc.Holds]).
// It tells servers less about this machine than vendors' libraries do, and lets in only answers with status 200, whose
// events are not too long. Any other answer is an [*llm.Error].
func (v Vendor) Client(out *http.Client) *http.Client {
	return &http.Client{
		Transport: guard{v, out},
		// Out has followed what redirects it follows.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// guard is a transport that calls with a client.
type guard struct {
	vendor Vendor
	out    *http.Client
}

func (g guard) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for name := range req.Header {
		if strings.HasPrefix(name, "X-Stainless-") || name == "X-Goog-Api-Client" {
			req.Header.Del(name)
		}
	}
	req.Header.Set("Accept", "text/event-stream")
	if g.vendor.Lines {
		req.Header.Set("Accept", "application/x-ndjson")
	}
	req.Header.Set("User-Agent", userAgent)
	if g.vendor.Dress != nil {
		g.vendor.Dress(req)
	}
	if err := agentsvc.Holds(req.Context()); err != nil {
		return nil, err
	}
	resp, err := g.out.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, g.vendor.status(resp)
	}
	resp.Body = &body{ReadCloser: resp.Body, ctx: req.Context(), lines: g.vendor.Lines, marker: g.vendor.Last}
	if broken, ok := req.Context().Value(brokenKey{}).(*error); ok {
		resp.Body = quiet{resp.Body, broken}
	}
	return resp, nil
}
