package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/config"
	"stoa/agentsvc/document/source"
	"stoa/agentsvc/document/source/api"
	"stoa/agentsvc/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers from pages by path and query, and counts requests.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
}

// startServer starts a server whose handler gets the number of the request, from 1.
func startServer(t *testing.T, handle func(w http.ResponseWriter, r *http.Request, n int)) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.URL.RequestURI())
		n := len(s.requests)
		s.mu.Unlock()
		handle(w, r, n)
	}))
	t.Cleanup(s.Close)
	return s
}

// takeRequests returns the requests since the last call.
func (s *server) takeRequests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.requests
	s.requests = nil
	return out
}

// newSource returns a source with the address base + c.URL.
func newSource(t *testing.T, base string, c config.APISource) *api.Source {
	t.Helper()
	c.URL = base + c.URL
	if c.IDField == "" {
		c.IDField = "id"
	}
	client := egress.New(egress.Options{PrivateNetwork: true})
	t.Cleanup(client.Close)
	s, err := api.New(api.Options{Config: &c, Client: client.HTTP()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// list returns the documents as "id: content", and the error that ended the listing.
func list(t *testing.T, s source.Source) (out []string, failed error) {
	t.Helper()
	for item, err := range s.List(t.Context()) {
		if err != nil {
			return out, err
		}
		out = append(out, item.ID+": "+open(t, item))
		if item.Version == "" {
			t.Errorf("%s has no version", item.ID)
		}
	}
	return out, nil
}

func open(t *testing.T, item source.Item) string {
	t.Helper()
	f, err := item.Open(t.Context())
	if err != nil {
		return "error: " + err.Error()
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  config.APISource
		body string
		want []string
		err  string
	}{
		"list":             {config.APISource{ContentField: "text"}, `[{"id":"a","text":"x"},{"id":12345678901234567890,"text":"y"}]`, []string{"a: x", "12345678901234567890: y"}, ""},
		"only list":        {config.APISource{ContentField: "text"}, `{"total":1,"data":[{"id":"a","text":"x"}]}`, []string{"a: x"}, ""},
		"items_field":      {config.APISource{ContentField: "a.b", IDField: "meta.id", ItemsField: "data.items"}, `{"data":{"items":[{"meta":{"id":"a"},"a":{"b":"x"}}],"other":[]}}`, []string{"a: x"}, ""},
		"dot in a name":    {config.APISource{ContentField: "a.b"}, `[{"id":"a","a.b":"x"}]`, []string{"a: x"}, ""},
		"whole object":     {config.APISource{}, `[{"id":"a","n":1.10}]`, []string{"a: {\n  \"id\": \"a\",\n  \"n\": 1.10\n}"}, ""},
		"empty":            {config.APISource{}, `[]`, nil, ""},
		"without content":  {config.APISource{ContentField: "text"}, `[{"id":"a"},{"id":"b","text":"x"}]`, []string{"a: error: the document has no field text, which content_field names", "b: x"}, ""},
		"without id":       {config.APISource{ContentField: "text"}, `[{"id":"a","text":"x"},{"text":"y"},{"id":{},"text":"z"},7]`, []string{"a: x", "(documents without id): error: 3 documents have no text or number in the field id, the first is number 2 of page 1; give them one"}, ""},
		"no id at all":     {config.APISource{}, `[{"key":1},{"key":2}]`, nil, "none of the 2 documents has a text or a number in the field id; set id_field to the field that names a document"},
		"long id":          {config.APISource{}, `[{"id":"` + strings.Repeat("k", 600) + `"}]`, []string{source.ShortenID(strings.Repeat("k", 600)) + ": error: the field id has more than 512 bytes"}, ""},
		"line break in id": {config.APISource{}, `[{"id":"a\nb"}]`, []string{source.ShortenID("a\nb") + ": error: the field id has a control character, a line break or a mark of the direction of writing"}, ""},
		"invalid UTF-8":    {config.APISource{ContentField: "text"}, "[{\"id\":\"a\xff\",\"text\":\"x\"}]", []string{"a\ufffd: x"}, ""},
		"two lists":        {config.APISource{}, `{"a":[],"b":[]}`, nil, "page 1: the answer has 2 fields with a list; set items_field to the one with the documents; the documents stay as they are"},
		"no items_field":   {config.APISource{ItemsField: "x"}, `{"a":[]}`, nil, "page 1: there is no field x, which items_field names; an empty page has an empty list; the documents stay as they are"},
		"items_field text": {config.APISource{ItemsField: "x"}, `{"x":"a"}`, nil, "page 1: the field x, which items_field names, is no list; the documents stay as they are"},
		"text":             {config.APISource{}, `"a"`, nil, "page 1: the answer is neither a list nor an object with one; the documents stay as they are"},
		"no JSON":          {config.APISource{}, `id=1`, nil, "page 1: the answer is no JSON, or breaks off; the documents stay as they are"},
		"breaks off":       {config.APISource{}, `[{"id":"a"},`, nil, "page 1: the answer is no JSON, or breaks off; the documents stay as they are"},
		"two values":       {config.APISource{}, `[] []`, nil, "page 1: the answer is no JSON, or breaks off; the documents stay as they are"},
		"nothing":          {config.APISource{}, ` `, nil, "page 1: the answer is empty and not JSON; the documents stay as they are"},
		"HTML without a type": {config.APISource{}, "\n<!DOCTYPE html><p>secret", nil,
			"page 1: the address answers with HTML or XML and not with JSON; check url, and whether it demands a login; the documents stay as they are"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := startServer(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, c.body)
			})
			got, err := list(t, newSource(t, srv.URL, c.cfg))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if text := fmt.Sprint(err); text != c.err && (err != nil || c.err != "") {
				t.Errorf("got  %s\nwant %s", text, c.err)
			}
		})
	}
}

// TestItem checks what is listed of a document in addition to its content.
func TestItem(t *testing.T) {
	t.Parallel()
	srv := startServer(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		_, _ = io.WriteString(w, `[{"id":"a","title":" T ","url":"/doc/a","html":"<!DOCTYPE html><p>x"},{"id":"b","name":"N","url":"javascript:x","html":"x"}]`)
	})
	var got [][4]string
	for item, err := range newSource(t, srv.URL, config.APISource{ContentField: "html"}).List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, [4]string{item.ID, item.Title, item.URL, item.MediaType})
	}
	if diff := cmp.Diff([][4]string{{"a", "T", srv.URL + "/doc/a", "text/html"}, {"b", "N", "", "text/plain"}}, got); diff != "" {
		t.Error(diff)
	}
}

// TestPagination has three pages of one document each, in each of the ways to name a page.
func TestPagination(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  config.APISource
		next func(w http.ResponseWriter, base, page string) string // of the JSON, after the list
		want []string
	}{
		"address": {config.APISource{URL: "/x?page=1&q=a", Pagination: &config.Pagination{NextField: "links.next"}},
			func(_ http.ResponseWriter, base, page string) string {
				return map[string]string{"1": `,"links":{"next":"?page=2"}`, "2": `,"links":{"next":"` + base + `/x?page=3"}`, "3": `,"links":{"next":null}`}[page]
			}, []string{"/x?page=1&q=a", "/x?page=2", "/x?page=3"}},
		"token": {config.APISource{URL: "/x?q=a", Pagination: &config.Pagination{NextField: "next", TokenParam: "page"}},
			func(_ http.ResponseWriter, _, page string) string {
				return map[string]string{"": `,"next":2`, "2": `,"next":"3"`, "3": `,"next":""`}[page]
			}, []string{"/x?q=a", "/x?page=2&q=a", "/x?page=3&q=a"}},
		"number": {config.APISource{URL: "/x?page=9", Pagination: &config.Pagination{PageParam: "page", FirstPage: 1}},
			func(http.ResponseWriter, string, string) string { return "" }, []string{"/x?page=1", "/x?page=2", "/x?page=3", "/x?page=4"}},
		"header": {config.APISource{URL: "/x"},
			func(w http.ResponseWriter, _, page string) string {
				w.Header().Add("Link", `</x?page=0>; rel="prev"; title="a, b", </y>; rel=last`)
				w.Header().Add("Link", map[string]string{"": `</x?page=2>; title="rel=\"x"; rel="last next"`, "2": `<?page=3>;rel=next`}[page])
				return ""
			}, []string{"/x", "/x?page=2", "/x?page=3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var srv *server
			srv = startServer(t, func(w http.ResponseWriter, r *http.Request, _ int) {
				page := r.URL.Query().Get("page")
				next := c.next(w, srv.URL, page)
				list := `{"id":"` + page + `"}`
				if page == "4" {
					list = ""
				}
				if page == "" {
					list = `{"id":"1"}`
				}
				_, _ = io.WriteString(w, `{"items":[`+list+`]`+next+`}`)
			})
			c.cfg.ContentField = "id"
			got, err := list(t, newSource(t, srv.URL, c.cfg))
			if diff := cmp.Diff([]string{"1: 1", "2: 2", "3: 3"}, got); diff != "" || err != nil {
				t.Error(err, diff)
			}
			if diff := cmp.Diff(c.want, srv.takeRequests()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestPageLoops checks pages that never end.
func TestPageLoops(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg      config.APISource
		page     func(n int) string
		want     string
		requests int
	}{
		"itself": {config.APISource{URL: "/?p=1", Pagination: &config.Pagination{NextField: "next"}}, func(int) string { return `{"items":[{"id":"1"}],"next":"?p=1"}` },
			"page 1 leads back to a page before it: the pages are a circle; check pagination", 1},
		"circle": {config.APISource{Pagination: &config.Pagination{NextField: "next", TokenParam: "t"}}, func(n int) string { return fmt.Sprintf(`{"items":[{"id":"%d"}],"next":%d}`, n, n%3) },
			"page 4 leads back to a page before it: the pages are a circle; check pagination", 4},
		"ignores the number": {config.APISource{Pagination: &config.Pagination{PageParam: "page"}}, func(int) string { return `{"items":[{"id":"1"}]}` },
			"page 2 has only documents of the pages before it: the address does not understand how pages are asked for; check pagination", 2},
		"endless": {config.APISource{Pagination: &config.Pagination{PageParam: "page"}}, func(n int) string { return fmt.Sprintf(`[{"id":%d}]`, n) },
			"the address has more than 1000 pages; ask for larger pages, or for fewer documents", 1000},
		"next is no address": {config.APISource{Pagination: &config.Pagination{NextField: "next"}}, func(int) string { return `{"items":[],"next":"ftp://x/y"}` },
			"page 1: the next page has no address with http or https; if next_field holds a token, set token_param; the documents stay as they are", 1},
		"next is a list": {config.APISource{Pagination: &config.Pagination{NextField: "next"}, ItemsField: "items"}, func(int) string { return `{"items":[],"next":[]}` },
			"page 1: the field next is no text and no number; set next_field to the field with the next page; the documents stay as they are", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := startServer(t, func(w http.ResponseWriter, _ *http.Request, n int) { _, _ = io.WriteString(w, c.page(n)) })
			_, err := list(t, newSource(t, srv.URL, c.cfg))
			if fmt.Sprint(err) != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			if n := len(srv.takeRequests()); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
		})
	}
}

// TestMovedDocuments checks that a document that a page repeats is listed once.
func TestMovedDocuments(t *testing.T) {
	t.Parallel()
	srv := startServer(t, func(w http.ResponseWriter, _ *http.Request, n int) {
		_, _ = io.WriteString(w, []string{`[{"id":1},{"id":2}]`, `[{"id":2},{"id":3}]`, `[]`}[n-1])
	})
	got, err := list(t, newSource(t, srv.URL, config.APISource{ContentField: "id", Pagination: &config.Pagination{PageParam: "page"}}))
	if diff := cmp.Diff([]string{"1: 1", "2: 2", "3: 3"}, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

// TestUnchanged checks that pages that have not changed are not transferred again, by either validator, and that their
// documents can be opened all the same.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	for name, validator := range map[string][3]string{
		"ETag": {"ETag", `"v1"`, "If-None-Match"}, "Last-Modified": {"Last-Modified", "Mon, 01 Jan 2024 10:00:00 GMT", "If-Modified-Since"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transferred, changed := 0, false
			srv := startServer(t, func(w http.ResponseWriter, r *http.Request, _ int) {
				second := r.URL.Query().Get("page") == "2"
				w.Header().Set(validator[0], validator[1])
				if r.Header.Get(validator[2]) == validator[1] && (!changed || second) {
					w.WriteHeader(http.StatusNotModified)
					return
				}
				transferred++
				switch {
				case second:
					_, _ = io.WriteString(w, `{"items":[{"id":"c","text":"3"},{"id":"d","text":"4"}]}`)
				case changed:
					_, _ = io.WriteString(w, `{"items":[{"id":"a","text":"new"}],"next":"?page=2"}`)
				default:
					_, _ = io.WriteString(w, `{"items":[{"id":"a","text":"1"},{"id":"b","text":"2"}],"next":"?page=2"}`)
				}
			})
			s := newSource(t, srv.URL, config.APISource{URL: "/", ContentField: "text", Pagination: &config.Pagination{NextField: "next"}})
			versions := func() (out []string) {
				for item, err := range s.List(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					out = append(out, item.ID+" "+item.Version)
				}
				return out
			}
			first := versions()
			if diff := cmp.Diff(first, versions()); diff != "" || len(first) != 4 || transferred != 2 {
				t.Errorf("%d transferred, %s", transferred, diff)
			}
			if got, err := list(t, s); err != nil || strings.Join(got, ", ") != "a: 1, b: 2, c: 3, d: 4" || transferred != 4 {
				t.Errorf("%v, %v, %d transferred", got, err, transferred)
			}
			changed = true
			if got, err := list(t, s); err != nil || strings.Join(got, ", ") != "a: new, c: 3, d: 4" {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// TestOnePageCostsOneRequest: an unchanged listing of one page is one request.
func TestOnePageCostsOneRequest(t *testing.T) {
	t.Parallel()
	srv := startServer(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		http.ServeContent(w, r, "x.json", time.Unix(1, 0), strings.NewReader(`[{"id":"a"}]`))
	})
	s := newSource(t, srv.URL, config.APISource{})
	for range 2 {
		n := 0
		for _, err := range s.List(t.Context()) {
			if n++; err != nil {
				t.Fatal(err)
			}
		}
		if requests := srv.takeRequests(); len(requests) != 1 || n != 1 {
			t.Errorf("%d documents by %d requests", n, len(requests))
		}
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status     int
		retryAfter string
		fails      int // of the first requests; 0 = all
		want       string
		requests   int
		wait       time.Duration
		permanent  bool
	}{
		"429 once":     {429, "1", 1, "", 2, 0, false},
		"429 for long": {429, "3600", 0, "the server asks for fewer calls (status 429)", 1, time.Hour, false},
		"503 at first": {503, "", 2, "", 3, 0, false},
		"500 always":   {500, "", 0, "the server has a fault (status 500)", 4, 0, false},
		"401":          {401, "", 0, "the server refuses access (status 401); check headers", 1, 0, true},
		"404":          {404, "", 0, "the server does not know the address (status 404); check url and pagination", 1, 0, true},
		"418":          {418, "", 0, "the server answers with status 418", 1, 0, true},
		"204":          {204, "", 0, "the server answers with status 204", 1, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := startServer(t, func(w http.ResponseWriter, _ *http.Request, n int) {
				if c.fails == 0 || n <= c.fails {
					if c.retryAfter != "" {
						w.Header().Set("Retry-After", c.retryAfter)
					}
					w.WriteHeader(c.status)
					return
				}
				_, _ = io.WriteString(w, `[{"id":"a"}]`)
			})
			got, err := list(t, newSource(t, srv.URL, config.APISource{ContentField: "id"}))
			if n := len(srv.takeRequests()); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
			if c.want == "" {
				if err != nil || len(got) != 1 {
					t.Errorf("%v, %v", got, err)
				}
				return
			}
			var failed *source.Error
			if !errors.As(err, &failed) || failed.Message != "page 1: "+c.want+"; the documents stay as they are" || failed.RetryAfter != c.wait || failed.Permanent != c.permanent {
				t.Errorf("%+v", err)
			}
		})
	}
}

// TestHostileServers checks answers that are no pages.
func TestHostileServers(t *testing.T) {
	t.Parallel()
	const html = "the address answers with HTML or XML and not with JSON; check url, and whether it demands a login"
	for name, c := range map[string]struct {
		handle func(w http.ResponseWriter, r *http.Request)
		want   string
	}{
		"HTML": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, `[{"id":"a"}]`)
		}, html},
		"redirect to a login": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/login" {
				http.Redirect(w, r, "/login", http.StatusFound)
				return
			}
			_, _ = io.WriteString(w, `<html><form>`)
		}, html},
		"too large": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `["`)
			chunk := strings.Repeat("x", 1<<20)
			for range 20 {
				_, _ = io.WriteString(w, chunk)
			}
		}, "it has more than 4194304 bytes; ask for smaller pages"},
		"deep": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("[", 100_000)) }, "the answer is no JSON, or breaks off"},
		"breaks off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `[`)
		}, "the connection failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := startServer(t, func(w http.ResponseWriter, r *http.Request, _ int) { c.handle(w, r) })
			if _, err := list(t, newSource(t, srv.URL, config.APISource{})); fmt.Sprint(err) != "page 1: "+c.want+"; the documents stay as they are" {
				t.Errorf("got %v", err)
			}
		})
	}
	c := config.APISource{URL: "http://127.0.0.1:1", IDField: "id"}
	s, err := api.New(api.Options{Config: &c, Client: egress.New(egress.Options{}).HTTP()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := list(t, s); !source.IsPermanent(err) || !strings.Contains(err.Error(), `the address of "127.0.0.1" is not allowed`) {
		t.Errorf("got %v", err)
	}
	for _, address := range []string{"", "x", "ftp://x", "http://", "http://%zz"} {
		if _, err := api.New(api.Options{Config: &config.APISource{URL: address}}); err == nil {
			t.Errorf("%q is accepted", address)
		}
	}
}

// TestCredentials checks that headers go to the configured host only, and to its next pages.
func TestCredentials(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]string{}
	record := func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.URL.Path] = r.Header.Get("X-Api-Key") + " " + r.Header.Get("Accept")
	}
	other := startServer(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		record(r)
		_, _ = io.WriteString(w, `{"items":[{"id":3}],"next":""}`)
	})
	srv := startServer(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		record(r)
		switch r.URL.Path {
		case "/1":
			_, _ = io.WriteString(w, `{"items":[{"id":1}],"next":"/2"}`)
		case "/2":
			_, _ = io.WriteString(w, `{"items":[{"id":2}],"next":"`+other.URL+`/3"}`)
		case "/moved":
			http.Redirect(w, r, other.URL+"/4", http.StatusFound)
		}
	})
	for _, path := range []string{"/1", "/moved"} {
		cfg := config.APISource{URL: path, Headers: map[string]string{"X-Api-Key": "canary", "accept": "application/vnd.x+json"}, Pagination: &config.Pagination{NextField: "next"}}
		if _, err := list(t, newSource(t, srv.URL, cfg)); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{
		"/1": "canary application/vnd.x+json", "/2": "canary application/vnd.x+json", "/3": " application/json", "/moved": "canary application/vnd.x+json", "/4": " application/vnd.x+json",
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Error(diff)
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	srv := startServer(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		cancel()
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	s := newSource(t, srv.URL, config.APISource{})
	for _, err := range s.List(ctx) {
		if err == nil {
			t.Error("a cancelled listing goes on")
		}
	}
	if err := s.Wait(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

// newSourceWithMemory is newSource with a pool, whose reserved bytes observe receives.
func newSourceWithMemory(t *testing.T, base string, size int64, observe func(reserved int64)) *api.Source {
	t.Helper()
	client := egress.New(egress.Options{PrivateNetwork: true})
	t.Cleanup(client.Close)
	s, err := api.New(api.Options{
		Config: &config.APISource{URL: base, IDField: "id", ContentField: "text", Pagination: &config.Pagination{PageParam: "page", FirstPage: 1}},
		Client: client.HTTP(), Memory: capacity.NewPool(size, observe).NewReservation("acme", 1),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEndlessPages lists an address whose pages never end. The memory of one page at a time is reserved, and that of what is
// remembered of all; the listing ends at the bound of the latter.
func TestEndlessPages(t *testing.T) {
	t.Parallel()
	const items, titleBytes = 3000, 1000
	srv := startServer(t, func(w http.ResponseWriter, _ *http.Request, n int) {
		var page strings.Builder
		for i := range items {
			fmt.Fprintf(&page, `{"id":"%d-%d","title":"%s","text":"x"},`, n, i, strings.Repeat("t", titleBytes))
		}
		_, _ = io.WriteString(w, `[`+strings.TrimSuffix(page.String(), ",")+`]`)
	})
	var mu sync.Mutex
	var reserved, most int64
	s := newSourceWithMemory(t, srv.URL, 320<<20, func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		reserved, most = n, max(most, n)
	})
	documents := 0
	var failed error
	for item, err := range s.List(t.Context()) {
		if failed = err; err == nil {
			documents++
			if len(item.Title) > 512 {
				t.Fatalf("a title has %d bytes", len(item.Title))
			}
		}
	}
	if failed == nil || !strings.Contains(failed.Error(), "ids, titles and addresses") {
		t.Errorf("%d documents are listed, the error is %v", documents, failed)
	}
	if most < 64<<20 || most > 96<<20 || reserved != 0 {
		t.Errorf("%d bytes were reserved at most, %d remain", most, reserved)
	}
}

// TestManyValues checks that the values of a page are counted before they are decoded: they may take 40 times as much as
// their text.
func TestManyValues(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"numbers": "[" + strings.Repeat("0,", 2_000_000) + "0]",
		"objects": "[" + strings.Repeat("{},", 1_000_000) + "{}]",
		"lists":   strings.Repeat("[[],", 1_000_000),
	} {
		srv := startServer(t, func(w http.ResponseWriter, _ *http.Request, _ int) { _, _ = io.WriteString(w, body) })
		var reserved int64
		s := newSourceWithMemory(t, srv.URL, 64<<20, func(n int64) { reserved = n })
		if _, err := list(t, s); err == nil || !strings.Contains(err.Error(), "more memory than an app may have") {
			t.Errorf("%s: %v", name, err)
		}
		if reserved != 0 {
			t.Errorf("%s: %d bytes remain reserved", name, reserved)
		}
	}
}
