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

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html/charset"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/tool"
)

// maxPageBytes is how many bytes of a page are read. Markdown is far shorter than the page it is made from.
const maxPageBytes = 2 << 20

// webFetchTool shows a page as text.
type webFetchTool struct {
	credentialClient
	spec          agentsvc.ToolSpec
	htmlConverter *converter.Converter
	maxBody       int64
}

func newWebFetch(opts Options) (tool.Tool, error) {
	if opts.HTTP == nil {
		return nil, errors.New("web_fetch: an HTTP client is required")
	}
	// Escaping takes the square of the page's length, and a reader of the text needs none.
	html := converter.NewConverter(converter.WithEscapeMode(converter.EscapeModeDisabled), converter.WithPlugins(base.NewBasePlugin(), commonmark.NewCommonmarkPlugin(), table.NewTablePlugin()))
	return webFetchTool{credentialClient: credentialClient{opts.HTTP, opts.Credential}, htmlConverter: html, maxBody: opts.bodyLimit(), spec: opts.toolSpec(
		"Fetches a web page and returns its text, HTML as Markdown.", `{
		"type": "object",
		"properties": {
			"url": {"type": "string", "description": "http or https address"}
		},
		"required": ["url"],
		"additionalProperties": false
	}`)}, nil
}

func (w webFetchTool) Spec() agentsvc.ToolSpec { return w.spec }
func (w webFetchTool) IsIdempotent() bool      { return true }

func (w webFetchTool) Call(ctx context.Context, in tool.Input) (string, error) {
	var args struct {
		URL string `json:"url"`
	}
	if err := decodeArguments(in, &args); err != nil {
		return "", err
	}
	if u, err := url.Parse(args.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", fmt.Errorf("%q is no http or https address", args.URL)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, args.URL, nil)
	if err != nil {
		return "", fmt.Errorf("%q is no http or https address", args.URL)
	}
	req.Header.Set("Accept", "text/html, text/markdown;q=0.9, text/*;q=0.8, application/json;q=0.8, */*;q=0.1")
	resp, credential, err := w.sendRequest(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := w.readPage(resp)
	if err != nil {
		return "", err
	}
	text = credential.RedactText(text)
	head := ""
	if final := resp.Request.URL.String(); final != args.URL {
		head = "From " + credential.RedactText(final) + "\n\n"
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return "", fmt.Errorf("HTTP %d %s\n\n%s%s", resp.StatusCode, http.StatusText(resp.StatusCode), head, text)
	}
	return head + text, nil
}

// readPage returns the text of an answer: of HTML as Markdown, of other text as it is.
func (w webFetchTool) readPage(resp *http.Response) (string, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPageBytes+1))
	var large *egress.TooLargeError
	if err != nil && !errors.As(err, &large) {
		return "", fmt.Errorf("%s: the answer broke off: %s", resp.Request.URL.Host, egress.PublicMessage(err))
	}
	cut := large != nil || len(body) > maxPageBytes
	body = body[:min(len(body), maxPageBytes)]
	declared := resp.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(declared)
	if err != nil {
		declared = http.DetectContentType(body)
		media, _, _ = strings.Cut(declared, ";")
	}
	html := media == "text/html" || media == "application/xhtml+xml"
	if !html && !isTextMediaType(media) {
		return "", fmt.Errorf("%s is %s, which is no text", resp.Request.URL.Host, media)
	}
	encoding, _, _ := charset.DetermineEncoding(body, declared)
	text, err := encoding.NewDecoder().String(string(body))
	if err != nil {
		text = string(body)
	}
	if html {
		if text, err = w.htmlConverter.ConvertString(text, converter.WithDomain(resp.Request.URL.String())); err != nil {
			return "", fmt.Errorf("%s: the page cannot be read as HTML", resp.Request.URL.Host)
		}
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	if int64(len(text)) > w.maxBody {
		text, cut = strings.ToValidUTF8(text[:w.maxBody], ""), true
	}
	if cut {
		text += "\n[cut here: the page is longer]"
	}
	return text, nil
}

// isTextMediaType reports whether what has this media type is text.
func isTextMediaType(media string) bool {
	switch media {
	case "application/json", "application/xml", "application/yaml", "application/javascript", "application/toml", "application/x-ndjson":
		return true
	}
	return strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "+json") || strings.HasSuffix(media, "+xml")
}
