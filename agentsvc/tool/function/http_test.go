package function_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"stoa/agentsvc/egress"
	"stoa/agentsvc/tool/function"
)

// newLocalClient returns a client that may call this machine.
func newLocalClient(t *testing.T) *http.Client {
	t.Helper()
	c := egress.New(egress.Options{PrivateNetwork: true})
	t.Cleanup(c.Close)
	return c.HTTP()
}

func callHTTPRequest(t *testing.T, arguments map[string]any, opts function.Options) (text string, failed bool) {
	t.Helper()
	if opts.HTTP == nil {
		opts.HTTP = newLocalClient(t)
	}
	args, err := json.Marshal(arguments)
	if err != nil {
		t.Fatal(err)
	}
	got := callTool(t, newBuiltin(t, "http_request", opts), string(args))
	return got.Text, got.Failed
}

func TestHTTPRequest(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/plain")
		if r.URL.Path == "/missing" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, r.Method+" "+r.Header.Get("X-Test")+" "+r.Header.Get("Idempotency-Key")+" "+string(body))
	}))
	t.Cleanup(srv.Close)
	tests := []struct {
		name string
		args map[string]any
		want string
	}{
		{"get", map[string]any{"url": srv.URL}, "HTTP 200 OK\nContent-Type: text/plain\n\nGET   "},
		{"header", map[string]any{"url": srv.URL, "headers": map[string]string{"x-test": "a"}}, "HTTP 200 OK\nContent-Type: text/plain\n\nGET a  "},
		{"post", map[string]any{"url": srv.URL, "method": "POST", "body": "hi"}, "HTTP 200 OK\nContent-Type: text/plain\n\nPOST  step-1 hi"},
		{"own key", map[string]any{"url": srv.URL, "method": "PUT", "headers": map[string]string{"Idempotency-Key": "k"}}, "HTTP 200 OK\nContent-Type: text/plain\n\nPUT  k "},
		{"patch", map[string]any{"url": srv.URL, "method": "PATCH", "body": "x"}, "HTTP 200 OK\nContent-Type: text/plain\n\nPATCH  step-1 x"},
		{"delete", map[string]any{"url": srv.URL, "method": "DELETE"}, "HTTP 200 OK\nContent-Type: text/plain\n\nDELETE  step-1 "},
		{"not found", map[string]any{"url": srv.URL + "/missing"}, "HTTP 404 Not Found\nContent-Type: text/plain\n\nGET   "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got, failed := callHTTPRequest(t, tt.args, function.Options{}); got != tt.want || failed {
				t.Errorf("got %q, failed %v; want %q", got, failed, tt.want)
			}
		})
	}
}

func TestHTTPRequestRefuses(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") }))
	t.Cleanup(srv.Close)
	header := func(name, value string) map[string]any {
		return map[string]any{"url": srv.URL, "headers": map[string]string{name: value}}
	}
	many := map[string]string{}
	for i := range 51 {
		many["X-"+strings.Repeat("a", i+1)] = "x"
	}
	tests := []struct {
		name string
		args map[string]any
		want string
	}{
		{"scheme", map[string]any{"url": "file:///etc/passwd"}, "is no http or https address"},
		{"no host", map[string]any{"url": "http:///x"}, "is no http or https address"},
		{"relative", map[string]any{"url": "/x"}, "is no http or https address"},
		{"method", map[string]any{"url": srv.URL, "method": "TRACE"}, "do not fit its schema"},
		{"body of a get", map[string]any{"url": srv.URL, "body": "x"}, "a GET request takes no body"},
		{"large body", map[string]any{"url": srv.URL, "method": "POST", "body": strings.Repeat("x", 1001)}, "the body is longer than 1000 bytes"},
		{"host", header("host", "inside"), "header Host may not be set"},
		{"connection", header("Connection", "close"), "header Connection may not be set"},
		{"transfer encoding", header("transfer-encoding", "chunked"), "header Transfer-Encoding may not be set"},
		{"content length", header("Content-Length", "1"), "header Content-Length may not be set"},
		{"proxy", header("Proxy-Anything", "x"), "header Proxy-Anything may not be set"},
		{"forwarded", header("X-Forwarded-For", "1.2.3.4"), "header X-Forwarded-For may not be set"},
		{"header name", header("X Y", "x"), "is no header name"},
		{"empty header name", header("", "x"), "is no header name"},
		{"header value", header("X-A", "a\r\nX-B: b"), "the value of header X-A holds a control character"},
		{"many headers", map[string]any{"url": srv.URL, "headers": many}, "more than 50 headers"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got, failed := callHTTPRequest(t, tt.args, function.Options{MaxBody: 1000}); !failed || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, failed %v; want %q", got, failed, tt.want)
			}
		})
	}
}

func TestHTTPRequestGuard(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the inside was reached") }))
	t.Cleanup(srv.Close)
	guarded := egress.New(egress.Options{})
	t.Cleanup(guarded.Close)
	got, failed := callHTTPRequest(t, map[string]any{"url": srv.URL + "/?secret=1"}, function.Options{HTTP: guarded.HTTP()})
	if !failed || !strings.Contains(got, "not allowed") || strings.Contains(got, "secret") {
		t.Errorf("got %q, failed %v", got, failed)
	}
}

func TestHTTPRequestUnreachable(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	got, failed := callHTTPRequest(t, map[string]any{"url": srv.URL}, function.Options{})
	if !failed || !strings.HasSuffix(got, ": the connection was refused") {
		t.Errorf("got %q, failed %v", got, failed)
	}
}

func TestHTTPAnswers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, media, body, want string
	}{
		{"at the limit", "text/plain", "1234567", "1234567"},
		{"longer", "text/plain", "12345678", "1234567\n[cut here: the answer is longer than 7 bytes]"},
		{"cut in a character", "text/plain", "123456é8", "123456\n[cut here: the answer is longer than 7 bytes]"},
		{"no text", "image/png", "\x89PNG\xff", "[5 bytes that are no text]"},
		{"NUL", "text/plain", "a\x00b", "[3 bytes that are no text]"},
		{"empty", "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{tt.media}
				_, _ = io.WriteString(w, tt.body)
			}))
			t.Cleanup(srv.Close)
			got, failed := callHTTPRequest(t, map[string]any{"url": srv.URL}, function.Options{MaxBody: 7})
			_, body, _ := strings.Cut(got, "\n\n")
			if body != tt.want || failed {
				t.Errorf("body %q, failed %v; want %q", body, failed, tt.want)
			}
		})
	}
}

func TestHTTPAnswerOverTheClientsCap(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "12345")
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, strings.Repeat("x", 1000))
	}))
	t.Cleanup(srv.Close)
	capped := egress.New(egress.Options{PrivateNetwork: true, MaxBytes: 5})
	t.Cleanup(capped.Close)
	got, failed := callHTTPRequest(t, map[string]any{"url": srv.URL}, function.Options{HTTP: capped.HTTP()})
	if failed || !strings.HasSuffix(got, "12345\n[cut here: the answer is longer than 5 bytes]") {
		t.Errorf("got %q, failed %v", got, failed)
	}
}
