package upstream

import (
	"net/http"
	"strings"

	"stoa/agentsvc/egress"
)

// NewClient returns a client that sends requests through out, which enforces the egress rules. Before each request it
// checks the call's lease, so that a worker that lost its run makes no further paid call. It removes
// the headers with which vendors' libraries describe the machine. An answer with another status than 200 is an
// [*llm.Error]; the body of any other is bounded by eventBody.
func (v Vendor) NewClient(out *http.Client) *http.Client {
	return &http.Client{
		Transport: vendorTransport{v, out},
		// out has already followed the redirects that the egress rules permit.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// vendorTransport is the transport of NewClient. It is safe for concurrent use.
type vendorTransport struct {
	vendor Vendor
	client *http.Client
}

// RoundTrip implements [http.RoundTripper].
func (t vendorTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for name := range req.Header {
		if strings.HasPrefix(name, "X-Stainless-") || name == "X-Goog-Api-Client" {
			req.Header.Del(name)
		}
	}
	req.Header.Set("Accept", "text/event-stream")
	if t.vendor.LineDelimited {
		req.Header.Set("Accept", "application/x-ndjson")
	}
	req.Header.Set("User-Agent", egress.UserAgent)
	if t.vendor.PrepareRequest != nil {
		t.vendor.PrepareRequest(req)
	}
	call, ok := req.Context().Value(transportCallKey{}).(*transportCall)
	if !ok {
		call = &transportCall{}
	}
	if err := call.lease.Check(req.Context()); err != nil {
		return nil, err
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, t.vendor.statusError(resp)
	}
	resp.Body = &eventBody{ReadCloser: resp.Body, ctx: req.Context(), memory: call.memory, lineDelimited: t.vendor.LineDelimited, marker: t.vendor.EndMarker}
	if t.vendor.EndOnReadError {
		resp.Body = truncatingBody{resp.Body, &call.bodyErr}
	}
	return resp, nil
}
