package function

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/tool"
)

// allowedMethods are the methods that http_request may send.
var allowedMethods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// forbiddenHeaders are the headers that a model must not set: those of the connection (RFC 9110, section 7.6.1), of the
// message's framing, and of routing, by which a request could pretend to come from somewhere else.
var forbiddenHeaders = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true, "Proxy-Connection": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Http2-Settings": true,
	"Host": true, "Content-Length": true, "Accept-Encoding": true, "Expect": true,
	"Forwarded": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true, "X-Real-Ip": true, "Via": true,
}

// maxHeaders bounds the headers of one request; a model has no use for more.
const maxHeaders = 50

// httpRequestTool is the built-in http_request. It is not idempotent by default, since a request may have any effect.
// The egress client decides which addresses may be called, resolves names and bounds the answer.
type httpRequestTool struct {
	credentialClient
	spec    agentsvc.ToolSpec
	maxBody int64
}

// newHTTPRequest builds http_request. The schema does not mention Idempotency-Key, which the tool sets.
func newHTTPRequest(opts Options) (tool.Tool, error) {
	if opts.HTTP == nil {
		return nil, errors.New("http_request: an HTTP client is required")
	}
	return httpRequestTool{credentialClient: credentialClient{opts.HTTP, opts.Credential}, maxBody: opts.bodyLimit(), spec: opts.toolSpec(
		"Sends an HTTP request and returns the status and the text of the answer.", `{
		"type": "object",
		"properties": {
			"url": {"type": "string", "description": "http or https address"},
			"method": {"type": "string", "enum": ["GET", "POST", "PUT", "PATCH", "DELETE"], "description": "GET if left out"},
			"headers": {"type": "object", "additionalProperties": {"type": "string"}},
			"body": {"type": "string", "description": "not for GET; give a Content-Type header with it"}
		},
		"required": ["url"],
		"additionalProperties": false
	}`)}, nil
}

// Spec implements [tool.Tool].
func (h httpRequestTool) Spec() agentsvc.ToolSpec { return h.spec }

// IsIdempotent implements [tool.Tool]: a request may have any effect. The configuration may override it.
func (h httpRequestTool) IsIdempotent() bool { return false }

// requestArguments are the arguments of http_request.
type requestArguments struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// Call sends the request and returns the answer as text. Every status is a result and not an error, since only the
// model knows which one it expects. The caller's credential is removed from the text.
func (h httpRequestTool) Call(ctx context.Context, in tool.Call) (string, error) {
	var args requestArguments
	if err := decodeArguments(in, &args); err != nil {
		return "", err
	}
	req, err := h.newRequest(ctx, in.Step, args)
	if err != nil {
		return "", err
	}
	resp, credential, err := h.sendRequest(req, in.Session)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := h.formatResponse(resp)
	return credential.RedactText(text), err
}

// newRequest checks the arguments and returns the request. Requests other than GET carry the step as their
// Idempotency-Key, so that a server can recognise a repeated call; the model may override it. All errors are written
// for the model.
func (h httpRequestTool) newRequest(ctx context.Context, step string, args requestArguments) (*http.Request, error) {
	method := strings.ToUpper(args.Method)
	if method == "" {
		method = http.MethodGet
	}
	// The schema lists the methods too, but it may be the tenant's own.
	if !slices.Contains(allowedMethods, method) {
		return nil, fmt.Errorf("method %q is not allowed; the methods are %s", args.Method, strings.Join(allowedMethods, ", "))
	}
	// Which addresses may be called at all is decided by the egress client.
	if u, err := url.Parse(args.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("%q is no http or https address", args.URL)
	}
	if int64(len(args.Body)) > h.maxBody {
		return nil, fmt.Errorf("the body is longer than %d bytes", h.maxBody)
	}
	// A body of GET has no defined meaning (RFC 9110, section 9.3.1).
	if args.Body != "" && method == http.MethodGet {
		return nil, errors.New("a GET request takes no body")
	}
	if len(args.Headers) > maxHeaders {
		return nil, fmt.Errorf("more than %d headers", maxHeaders)
	}
	req, err := http.NewRequestWithContext(ctx, method, args.URL, strings.NewReader(args.Body))
	if err != nil {
		return nil, fmt.Errorf("%q is no http or https address", args.URL)
	}
	// The draft standard header by which many APIs recognise a repeated request.
	if method != http.MethodGet && step != "" {
		req.Header.Set("Idempotency-Key", step)
	}
	// The model's headers come last, so it can set its own Idempotency-Key.
	for name, value := range args.Headers {
		if err := checkHeader(name, value); err != nil {
			return nil, err
		}
		req.Header.Set(name, value)
	}
	return req, nil
}

// checkHeader returns an error for a header that a model must not set.
func checkHeader(name, value string) error {
	canonical := http.CanonicalHeaderKey(name)
	// The name must be a token (RFC 9110, section 5.6.2).
	token := name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
	switch {
	case !token:
		return fmt.Errorf("%q is no header name", name)
	// Proxy headers are forbidden as a class, since proxies define their own.
	case forbiddenHeaders[canonical] || strings.HasPrefix(canonical, "Proxy-"):
		return fmt.Errorf("header %s may not be set", canonical)
	// A line break in a value would inject headers (RFC 9110, section 5.5).
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return fmt.Errorf("the value of header %s holds a control character", canonical)
	}
	return nil
}

// formatResponse returns status, media type and body of an answer as text, with a note if the body is cut. A body that
// is not text is only described: its bytes are of no use to a model.
func (h httpRequestTool) formatResponse(resp *http.Response) (string, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, h.maxBody+1))
	var large *egress.TooLargeError
	if err != nil && !errors.As(err, &large) {
		return "", fmt.Errorf("%s: HTTP %d, then the answer broke off: %s", resp.Request.URL.Host, resp.StatusCode, egress.PublicMessage(err))
	}
	// The egress client may have cut the body before this limit.
	cut := large != nil || int64(len(body)) > h.maxBody
	if int64(len(body)) > h.maxBody {
		body = body[:h.maxBody]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP %d %s\n", resp.StatusCode, http.StatusText(resp.StatusCode))
	// Status, type and location come first, so that they are never cut off.
	media := resp.Header.Get("Content-Type")
	if media != "" {
		fmt.Fprintf(&b, "Content-Type: %s\n", media)
	}
	// Redirects that the client did not follow are for the model to decide.
	if location := resp.Header.Get("Location"); location != "" {
		fmt.Fprintf(&b, "Location: %s\n", location)
	}
	b.WriteString("\n")
	switch {
	case !isTextBody(body, cut):
		fmt.Fprintf(&b, "[%d bytes that are no text]", len(body))
	default:
		b.WriteString(strings.ToValidUTF8(string(body), ""))
		if cut {
			fmt.Fprintf(&b, "\n[cut here: the answer is longer than %d bytes]", len(body))
		}
	}
	return b.String(), nil
}

// isTextBody reports whether body is UTF-8 text without NUL. A body that was cut may end within a character.
func isTextBody(body []byte, cut bool) bool {
	if cut {
		// Remove the incomplete character at the end: up to three bytes.
		for range utf8.UTFMax - 1 {
			if r, n := utf8.DecodeLastRune(body); r != utf8.RuneError || n != 1 {
				break
			}
			body = body[:len(body)-1]
		}
	}
	return utf8.Valid(body) && !slices.Contains(body, 0)
}
