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

// allowedMethods are what http_request sends.
var allowedMethods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// forbiddenHeaders are the headers that belong to the connection (RFC 9110, section 7.6.1) or to the message's framing and
// routing; a model must not set them.
var forbiddenHeaders = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true, "Proxy-Connection": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Http2-Settings": true,
	"Host": true, "Content-Length": true, "Accept-Encoding": true, "Expect": true,
	"Forwarded": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true, "X-Real-Ip": true, "Via": true,
}

// maxHeaders bounds the headers of one request.
const maxHeaders = 50

// httpRequestTool sends a request to a server.
type httpRequestTool struct {
	credentialClient
	spec    agentsvc.ToolSpec
	maxBody int64
}

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

func (h httpRequestTool) Spec() agentsvc.ToolSpec { return h.spec }
func (h httpRequestTool) IsIdempotent() bool      { return false }

// requestArguments are the arguments of http_request.
type requestArguments struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

func (h httpRequestTool) Call(ctx context.Context, in tool.Input) (string, error) {
	var args requestArguments
	if err := decodeArguments(in, &args); err != nil {
		return "", err
	}
	req, err := h.newRequest(ctx, in.Step, args)
	if err != nil {
		return "", err
	}
	resp, credential, err := h.sendRequest(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := h.formatResponse(resp)
	return credential.RedactText(text), err
}

func (h httpRequestTool) newRequest(ctx context.Context, step string, args requestArguments) (*http.Request, error) {
	method := strings.ToUpper(args.Method)
	if method == "" {
		method = http.MethodGet
	}
	if !slices.Contains(allowedMethods, method) {
		return nil, fmt.Errorf("method %q is not sent; there are %s", args.Method, strings.Join(allowedMethods, ", "))
	}
	if u, err := url.Parse(args.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("%q is no http or https address", args.URL)
	}
	if int64(len(args.Body)) > h.maxBody {
		return nil, fmt.Errorf("the body is longer than %d bytes", h.maxBody)
	}
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
	if method != http.MethodGet && step != "" {
		req.Header.Set("Idempotency-Key", step)
	}
	for name, value := range args.Headers {
		if err := checkHeader(name, value); err != nil {
			return nil, err
		}
		req.Header.Set(name, value)
	}
	return req, nil
}

func checkHeader(name, value string) error {
	canonical := http.CanonicalHeaderKey(name)
	token := name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
	switch {
	case !token:
		return fmt.Errorf("%q is no header name", name)
	case forbiddenHeaders[canonical] || strings.HasPrefix(canonical, "Proxy-"):
		return fmt.Errorf("header %s may not be set", canonical)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return fmt.Errorf("the value of header %s holds a control character", canonical)
	}
	return nil
}

// formatResponse puts resp into text: the status, the media type, and the body where it is text.
func (h httpRequestTool) formatResponse(resp *http.Response) (string, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, h.maxBody+1))
	var large *egress.TooLargeError
	if err != nil && !errors.As(err, &large) {
		return "", fmt.Errorf("%s: HTTP %d, then the answer broke off: %s", resp.Request.URL.Host, resp.StatusCode, egress.PublicMessage(err))
	}
	cut := large != nil || int64(len(body)) > h.maxBody
	if int64(len(body)) > h.maxBody {
		body = body[:h.maxBody]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP %d %s\n", resp.StatusCode, http.StatusText(resp.StatusCode))
	media := resp.Header.Get("Content-Type")
	if media != "" {
		fmt.Fprintf(&b, "Content-Type: %s\n", media)
	}
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

// isTextBody reports whether body is text. One that was cut may end within a character.
func isTextBody(body []byte, cut bool) bool {
	if cut {
		for range utf8.UTFMax - 1 {
			if r, n := utf8.DecodeLastRune(body); r != utf8.RuneError || n != 1 {
				break
			}
			body = body[:len(body)-1]
		}
	}
	return utf8.Valid(body) && !slices.Contains(body, 0)
}
