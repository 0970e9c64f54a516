package function_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"stoa/agentsvc/egress"
	"stoa/agentsvc/tool/function"
)

const pageHTML = `<!doctype html><html><head><title>T</title><style>p{}</style><script>alert(1)</script></head><body>
<h1>Head</h1><p>Some <b>bold</b> text and a <a href="other.html">link</a>.</p>
<ul><li>one</li><li>two</li></ul>
<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table></body></html>`

const pageMarkdown = "# Head\n\nSome **bold** text and a [link](URL/docs/other.html).\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |"

func TestWebFetch(t *testing.T) {
	t.Parallel()
	answers := map[string]struct{ media, body string }{
		"/docs/page": {"text/html; charset=utf-8", pageHTML},
		"/plain":     {"text/plain", "a & b <c>"},
		"/json":      {"application/json", `{"a":1}`},
		"/latin":     {"text/plain; charset=iso-8859-1", "caf\xe9"},
		"/sniffed":   {"", pageHTML},
		"/image":     {"image/png", "\x89PNG"},
		"/long":      {"text/plain", strings.Repeat("x", 2000)},
		"/bad":       {"text/html", "<p>unclosed <b>text <table><td>x"},
		"/huge":      {"text/html", strings.Repeat("<p>x</p>", 20_000) + strings.Repeat("*_[", 800_000)},
		"/deep":      {"text/html", strings.Repeat("<div>", 100_000) + "x"},
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/plain", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/missing":
			http.NotFound(w, r)
		default:
			w.Header()["Content-Type"] = []string{answers[r.URL.Path].media}
			if answers[r.URL.Path].media == "" {
				w.Header().Del("Content-Type")
			}
			_, _ = io.WriteString(w, answers[r.URL.Path].body)
		}
	}))
	t.Cleanup(srv.Close)
	host := strings.TrimPrefix(srv.URL, "http://")
	tests := []struct {
		path, want string
		failed     bool
	}{
		{"/docs/page", strings.ReplaceAll(pageMarkdown, "URL", srv.URL), false},
		{"/plain", "a & b <c>", false},
		{"/json", `{"a":1}`, false},
		{"/latin", "café", false},
		{"/moved", "From " + srv.URL + "/plain\n\na & b <c>", false},
		{"/image", "web_fetch: " + host + " is image/png, which is no text", true},
		{"/long", strings.Repeat("x", 1000) + "\n[cut here: the page is longer]", false},
		{"/missing", "web_fetch: HTTP 404 Not Found\n\n404 page not found\n", true},
		{"/loop", "web_fetch: " + host + ": more than 3 redirects", true},
	}
	f := newBuiltin(t, "web_fetch", function.Options{HTTP: newLocalClient(t), MaxBody: 1000})
	fetch := func(t *testing.T, url string) (string, bool) {
		t.Helper()
		args, _ := json.Marshal(map[string]string{"url": url})
		got := callTool(t, f, string(args))
		return got.Text, got.Failed
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			t.Parallel()
			if got, failed := fetch(t, srv.URL+tt.path); got != tt.want || failed != tt.failed {
				t.Errorf("got %q, failed %v; want %q", got, failed, tt.want)
			}
		})
	}
	for path, want := range map[string]string{"/sniffed": "# Head", "/bad": "unclosed **text", "/huge": "\n[cut here: the page is longer]"} {
		if got, failed := fetch(t, srv.URL+path); failed || !strings.Contains(got, want) || len(got) > 1100 {
			t.Errorf("%s: got %.200q, failed %v; want %q in it", path, got, failed, want)
		}
	}
	if got, _ := fetch(t, srv.URL+"/deep"); len(got) > 1100 {
		t.Errorf("%d bytes of a deep page", len(got))
	}
	for _, url := range []string{"ftp://a/b", "file:///etc/passwd", "x", ""} {
		if got, failed := fetch(t, url); !failed || !strings.Contains(got, "is no http or https address") {
			t.Errorf("%q: %q", url, got)
		}
	}
}

// TestWebFetchMemory checks that the memory for a page is in proportion to its size, whatever its tags and their
// nesting.
func TestWebFetchMemory(t *testing.T) { // measures all that is allocated, and so runs alone
	const longPath = "/4096/"
	pages := map[string]string{
		"/colspan":      `<table><tr><td colspan="400000">x</td></tr><tr><td>y</td></tr></table>`,
		"/rowspan":      `<table><tr><td rowspan=400 colspan=1000>x</td></tr><tr><td>y</td></tr></table>`,
		"/spans":        "<table><tr>" + strings.Repeat("<td rowspan=90>x", 900) + "</tr>" + strings.Repeat("<tr><td>y", 90) + "</table>",
		"/wide":         "<table><tr><td>" + strings.Repeat("x", 10_000) + "</td></tr>" + strings.Repeat("<tr><td>a</td></tr>", 3000) + "</table>",
		"/rows_columns": "<table><tr>" + strings.Repeat("<td>", 1000) + "</tr>" + strings.Repeat("<tr><td>a", 1000) + "</table>",
		"/quotes":       strings.Repeat("<blockquote>", 200) + strings.Repeat("a<br>", 20_000),
		"/lists":        strings.Repeat("<ul><li>", 200) + strings.Repeat("a<br>", 20_000),
		"/comments":     strings.Repeat("a<!-->", 10_000),
		"/attributes":   "<p" + strings.Repeat(" a", 50_000) + ">x",
		longPath:        strings.Repeat("<a href=x>y</a>", 4000),
	}
	var open strings.Builder
	for i := range 400 {
		fmt.Fprintf(&open, "<b id=%d>", i)
	}
	pages["/open_marks"] = open.String() + strings.Repeat("<p>x", 1000)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		path := r.URL.Path
		if strings.HasPrefix(path, longPath) {
			path = longPath
		}
		_, _ = io.WriteString(w, pages[path])
	}))
	t.Cleanup(srv.Close)
	f := newBuiltin(t, "web_fetch", function.Options{HTTP: newLocalClient(t)})
	fetch := func(path string) (text string, allocated int) {
		if path == longPath {
			path += strings.Repeat("x", 4096)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := callTool(t, f, `{"url":"`+srv.URL+path+`"}`)
		runtime.ReadMemStats(&after)
		if got.Failed {
			t.Errorf("%s: %.200s", path, got.Text)
		}
		return got.Text, int(after.TotalAlloc - before.TotalAlloc)
	}
	fetch("/attributes") // for what is allocated once
	for path, page := range pages {
		text, allocated := fetch(path)
		if maximum := 4<<20 + 40*len(page); allocated > maximum || len(text) > 256<<10+100 {
			t.Errorf("%s: %d KiB are allocated for a page of %d KiB, at most %d KiB may be; the text has %d KiB", path, allocated>>10, len(page)>>10, maximum>>10, len(text)>>10)
		}
	}
}

func TestWebFetchGuard(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the inside was reached") }))
	t.Cleanup(srv.Close)
	guarded := egress.New(egress.Options{})
	t.Cleanup(guarded.Close)
	got := callTool(t, newBuiltin(t, "web_fetch", function.Options{HTTP: guarded.HTTP()}), `{"url":"`+srv.URL+`"}`)
	if !got.Failed || !strings.Contains(got.Text, "not allowed") {
		t.Errorf("got %q", got.Text)
	}
}
