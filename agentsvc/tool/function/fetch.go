package function

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/html/charset"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/pattern"
	"stoa/agentsvc/tool"
)

// maxPageBytes bounds the part of a page that is read, in bytes. It exceeds MaxBody, because Markdown is far shorter
// than the HTML it is made from.
const maxPageBytes = 2 << 20

// webFetchTool is the built-in web_fetch: it returns a page as text. Unlike http_request it sends GET only, converts
// HTML, and reads more of a page than it returns.
type webFetchTool struct {
	credentialClient
	app     string // see Options.App
	spec    agentsvc.ToolSpec
	maxBody int64
}

// newWebFetch builds web_fetch.
func newWebFetch(opts Options) (tool.Tool, error) {
	if opts.HTTP == nil {
		return nil, errors.New("web_fetch: an HTTP client is required")
	}
	return webFetchTool{app: opts.App, credentialClient: credentialClient{opts.HTTP, opts.Credential}, maxBody: opts.bodyLimit(), spec: opts.toolSpec(
		"Fetches a web page and returns its text, HTML as Markdown.", `{
		"type": "object",
		"properties": {
			"url": {"type": "string", "description": "http or https address"}
		},
		"required": ["url"],
		"additionalProperties": false
	}`)}, nil
}

// Spec implements [tool.Tool].
func (w webFetchTool) Spec() agentsvc.ToolSpec { return w.spec }

// IsIdempotent implements [tool.Tool]: GET is a safe method (RFC 9110, section 9.2.1).
func (w webFetchTool) IsIdempotent() bool { return true }

// Call fetches the page. A status of 400 or more is an error with the page's text.
func (w webFetchTool) Call(ctx context.Context, in tool.Call) (string, error) {
	var args struct {
		URL string `json:"url"`
	}
	if err := decodeArguments(in, &args); err != nil {
		return "", err
	}
	// Which addresses may be called at all is decided by the egress client.
	if u, err := url.Parse(args.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", fmt.Errorf("%q is no http or https address", args.URL)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, args.URL, nil)
	if err != nil {
		return "", fmt.Errorf("%q is no http or https address", args.URL)
	}
	// Text formats are preferred, but anything is accepted: many servers ignore the header.
	req.Header.Set("Accept", "text/html, text/markdown;q=0.9, text/*;q=0.8, application/json;q=0.8, */*;q=0.1")
	resp, credential, err := w.sendRequest(req, in.Session)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := w.readPage(ctx, resp)
	if err != nil {
		return "", err
	}
	text = credential.RedactText(text)
	// Redirects may have led to another page, whose address is then part of the result.
	head := ""
	if final := resp.Request.URL.String(); final != args.URL {
		head = "From " + credential.RedactText(final) + "\n\n"
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return "", fmt.Errorf("HTTP %d %s\n\n%s%s", resp.StatusCode, http.StatusText(resp.StatusCode), head, text)
	}
	return head + text, nil
}

// readPage returns the text of an answer, HTML as Markdown, with a note if it is cut. Content that is not text is an
// error. It bounds both the bytes read (maxPageBytes) and the bytes returned (maxBody).
func (w webFetchTool) readPage(ctx context.Context, resp *http.Response) (string, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPageBytes+1))
	var large *egress.TooLargeError
	if err != nil && !errors.As(err, &large) {
		return "", fmt.Errorf("%s: the answer broke off: %s", resp.Request.URL.Host, egress.PublicMessage(err))
	}
	// The egress client may have cut the body before maxPageBytes.
	cut := large != nil || len(body) > maxPageBytes
	body = body[:min(len(body), maxPageBytes)]
	declared := resp.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(declared)
	if err != nil {
		// Without a usable Content-Type the type is detected from the content.
		declared = http.DetectContentType(body)
		media, _, _ = strings.Cut(declared, ";")
	}
	html := media == "text/html" || media == "application/xhtml+xml"
	if !html && !isTextMediaType(media) {
		return "", fmt.Errorf("%s is %s, which is no text", resp.Request.URL.Host, media)
	}
	// The encoding follows from the header, a byte order mark or the page's meta element, as in browsers.
	encoding, _, _ := charset.DetermineEncoding(body, declared)
	text, err := encoding.NewDecoder().String(string(body))
	if err != nil {
		text = string(body)
	}
	if html {
		// The conversion is a long computation: it spends steps and shares the processors with other apps.
		work := pattern.NewStepBudget(ctx, w.app, 0)
		work.BeginComputation()
		text, err = convertHTML(work, text, resp.Request.URL, int(w.maxBody))
		work.EndComputation()
		if err != nil {
			return "", fmt.Errorf("%s: the page could not be converted: %w", resp.Request.URL.Host, err)
		}
	}
	// A result must be valid UTF-8 to be stored.
	text = strings.ToValidUTF8(text, "\uFFFD")
	if int64(len(text)) > w.maxBody {
		text, cut = strings.ToValidUTF8(text[:w.maxBody], ""), true
	}
	if cut {
		text += "\n[cut here: the page is longer]"
	}
	return text, nil
}

// isTextMediaType reports whether content of this media type is text.
func isTextMediaType(media string) bool {
	switch media {
	case "application/json", "application/xml", "application/yaml", "application/javascript", "application/toml", "application/x-ndjson":
		return true
	}
	return strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "+json") || strings.HasSuffix(media, "+xml")
}
