package upstream

import (
	"net/http"
	"strings"

	"stoa/agentsvc"
)

// userAgent is all that servers learn of who calls.
const userAgent = "stoa"

// NewClient returns a client that calls through out, each time only if the call is still to be made here ([agentsvc.CheckLease]).
// It tells servers less about this machine than vendors' libraries do, and lets in only answers with status 200, whose
// events are not too long. Any other answer is an [*llm.Error].
func (v Vendor) NewClient(out *http.Client) *http.Client {
	return &http.Client{
		Transport: vendorTransport{v, out},
		// Out has followed what redirects it follows.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// vendorTransport is a transport that calls with a client.
type vendorTransport struct {
	vendor Vendor
	client *http.Client
}

func (g vendorTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for name := range req.Header {
		if strings.HasPrefix(name, "X-Stainless-") || name == "X-Goog-Api-Client" {
			req.Header.Del(name)
		}
	}
	req.Header.Set("Accept", "text/event-stream")
	if g.vendor.LineDelimited {
		req.Header.Set("Accept", "application/x-ndjson")
	}
	req.Header.Set("User-Agent", userAgent)
	if g.vendor.PrepareRequest != nil {
		g.vendor.PrepareRequest(req)
	}
	if err := agentsvc.CheckLease(req.Context()); err != nil {
		return nil, err
	}
	resp, err := g.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, g.vendor.statusError(resp)
	}
	resp.Body = &eventBody{ReadCloser: resp.Body, ctx: req.Context(), lineDelimited: g.vendor.LineDelimited, marker: g.vendor.EndMarker}
	if bodyErr, ok := req.Context().Value(bodyErrKey{}).(*error); ok {
		resp.Body = truncatingBody{resp.Body, bodyErr}
	}
	return resp, nil
}
