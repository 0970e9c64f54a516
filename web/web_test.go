package web_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/tenancy/db/dbtest"
	"stoa/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newFixture serves the console.
func newFixture(t *testing.T) *surfacetest.Fixture {
	t.Helper()
	routes, err := web.Routes(web.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return surfacetest.New(t, surfacetest.Options{}, func(*surfacetest.Fixture) []surface.Route { return routes })
}

// assetPattern matches the address of a script or style sheet in index.html.
var assetPattern = regexp.MustCompile(`(?:src|href)="(/console/[^"]+\.(?:js|css))"`)

// listFirstLoad returns the paths of what a browser loads to show the first page: those in index.html, and what these
// scripts import statically.
func listFirstLoad(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("dist/index.html")
	if err != nil {
		t.Fatal(err)
	}
	imported := regexp.MustCompile(`(?:from|import)\s*"\./([^"]+\.js)"`)
	var all []string
	seen := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		if seen[name] {
			return
		}
		seen[name], all = true, append(all, name)
		if strings.HasSuffix(name, ".js") {
			script, err := os.ReadFile(filepath.Join("dist", name))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range imported.FindAllSubmatch(script, -1) {
				add("assets/" + string(m[1]))
			}
		}
	}
	for _, m := range assetPattern.FindAllSubmatch(page, -1) {
		add(strings.TrimPrefix(string(m[1]), web.Path))
	}
	if len(all) < 2 {
		t.Fatalf("index.html names %v: a script and a style sheet are missing", all)
	}
	return all
}

// TestServe checks the headers and bodies of each kind of file.
func TestServe(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	var script string
	for _, name := range listFirstLoad(t) {
		if strings.HasSuffix(name, ".js") {
			script = web.Path + name
		}
	}
	const immutable = "public, max-age=31536000, immutable"
	for _, tt := range []struct {
		name, path string
		headers    []string
		status     int
		media      string
		cache      string
		encoding   string
	}{
		{"the page", "/console/", nil, 200, "text/html; charset=utf-8", "no-cache", ""},
		{"the path of a page", "/console/tasks/01a2?status=failed&x=1", nil, 200, "text/html; charset=utf-8", "no-cache", ""},
		{"a script", script, nil, 200, "text/javascript; charset=utf-8", immutable, ""},
		{"a script in gzip", script, []string{"Accept-Encoding", "br, gzip;q=0.5"}, 200, "text/javascript; charset=utf-8", immutable, "gzip"},
		{"gzip is refused", script, []string{"Accept-Encoding", "gzip;q=0"}, 200, "text/javascript; charset=utf-8", immutable, ""},
		{"the icon", "/console/icon.svg", nil, 200, "image/svg+xml", "no-cache", ""},
		{"no asset", "/console/assets/nosuch.js", nil, 404, "application/json", "", ""},
		{"no gzip form by itself", script + ".gz", nil, 404, "application/json", "", ""},
		{"outside of dist", "/console/..%2fweb.go", nil, 200, "text/html; charset=utf-8", "no-cache", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// Without the header Go's transport would ask for gzip and decode it.
			headers := append([]string{"Accept-Encoding", "identity"}, tt.headers...)
			resp, body := h.Do(t, http.MethodGet, tt.path, "", nil, headers...)
			got := []any{resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header.Get("Cache-Control"), resp.Header.Get("Content-Encoding")}
			if diff := cmp.Diff([]any{tt.status, tt.media, tt.cache, tt.encoding}, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%.200s", diff, body)
			}
			if tt.status != http.StatusOK {
				return
			}
			policy := resp.Header.Get("Content-Security-Policy")
			if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; style-src 'self';") || strings.Contains(policy, "unsafe") ||
				resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Referrer-Policy") != "no-referrer" {
				t.Errorf("headers: %v", resp.Header)
			}
			again, _ := h.Do(t, http.MethodGet, tt.path, "", nil, append(headers, "If-None-Match", resp.Header.Get("ETag"))...)
			if again.StatusCode != http.StatusNotModified {
				t.Errorf("with its ETag: %d", again.StatusCode)
			}
		})
	}
}

// TestPolicy checks which origins of an OpenID provider the policy names.
func TestPolicy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		urls []string
		want string
	}{
		{"none", nil, "'self'"},
		{"issuer and keys of one host", []string{"https://login.example.com/realms/a", "https://login.example.com/keys"}, "'self' https://login.example.com"},
		{"two hosts", []string{"https://login.example.com", "https://keys.example.com:8443/k"}, "'self' https://login.example.com https://keys.example.com:8443"},
		{"an address", []string{"http://[::1]:9000/"}, "'self' http://[::1]:9000"},
		{"a host that would end the directive", []string{"https://a;script-src%20*/", "https://a b/", "https://*/"}, "'self'"},
		{"no web address", []string{"urn:issuer", "javascript:alert(1)", "data:x"}, "'self'"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			routes, err := web.Routes(web.Options{SignInURLs: tt.urls})
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			if err := routes[1].Serve(w, httptest.NewRequest(http.MethodGet, web.Path, nil)); err != nil {
				t.Fatal(err)
			}
			_, rest, _ := strings.Cut(w.Header().Get("Content-Security-Policy"), "connect-src ")
			if got, _, _ := strings.Cut(rest, ";"); got != tt.want {
				t.Errorf("connect-src %s, want %s", got, tt.want)
			}
		})
	}
}

// TestListener checks on which listener the pages exist.
func TestListener(t *testing.T) {
	t.Parallel()
	address := func(text string) *net.TCPAddr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text)) }
	for _, tt := range []struct {
		name      string
		at, local *net.TCPAddr
		served    bool
	}{
		{"every listener", nil, address("10.0.0.1:8080"), true},
		{"its own", address("127.0.0.1:9000"), address("127.0.0.1:9000"), true},
		{"its own on all addresses", address("0.0.0.0:9000"), address("10.0.0.1:9000"), true},
		{"another port", address("127.0.0.1:9000"), address("127.0.0.1:8080"), false},
		{"the same port of another address", address("127.0.0.1:8080"), address("10.0.0.1:8080"), false},
		{"an unknown one", address("127.0.0.1:9000"), nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			routes, err := web.Routes(web.Options{At: tt.at})
			if err != nil {
				t.Fatal(err)
			}
			for i, path := range []string{"/console", web.Path} {
				r := httptest.NewRequest(http.MethodGet, path, nil)
				if tt.local != nil {
					r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, tt.local))
				}
				if err := routes[i].Serve(httptest.NewRecorder(), r); (err == nil) != tt.served {
					t.Errorf("%s: %v, want served %t", path, err, tt.served)
				}
			}
		})
	}
}

// TestRedirect checks that the path without a slash leads to the console.
func TestRedirect(t *testing.T) {
	t.Parallel()
	routes, err := web.Routes(web.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	if err := routes[0].Serve(w, httptest.NewRequest(http.MethodGet, "/console", nil)); err != nil || w.Code != http.StatusTemporaryRedirect || w.Header().Get("Location") != "console/" {
		t.Errorf("%d to %q: %v", w.Code, w.Header().Get("Location"), err)
	}
}

// TestRoot checks that the root leads browsers to the console, also those without a credential, and answers every other client
// as without the console.
func TestRoot(t *testing.T) {
	t.Parallel()
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
	serve := func(o surface.Options) *surfacetest.Fixture {
		return surfacetest.New(t, surfacetest.Options{Surface: o}, func(*surfacetest.Fixture) []surface.Route {
			answer := func(w http.ResponseWriter, _ *http.Request) error { _, err := w.Write([]byte("{}")); return err }
			return []surface.Route{
				{Method: http.MethodPost, Pattern: "/", Kind: surface.Open, Serve: answer},
				{Method: http.MethodPost, Pattern: "/stream", Kind: surface.Open, Serve: answer},
			}
		})
	}
	with, without := serve(surface.Options{Browsers: surface.Browsers{FindHomePage: web.Options{}.FindHomePage}}), serve(surface.Options{})
	elsewhere := serve(surface.Options{Browsers: surface.Browsers{FindHomePage: web.Options{At: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}}.FindHomePage}})
	for _, tt := range []struct {
		name, method, path, accept string
		h                          *surfacetest.Fixture
		leads                      bool
	}{
		{"a browser", "GET", "/", browser, with, true},
		{"a browser, HEAD", "HEAD", "/", browser, with, true},
		{"HTML before JSON of the same weight", "GET", "/", "text/html, application/json", with, true},
		{"any", "GET", "/", "*/*", with, false},
		{"nothing", "GET", "/", "", with, false},
		{"JSON", "GET", "/", "application/json", with, false},
		{"JSON before HTML", "GET", "/", "application/json, text/html", with, false},
		{"JSON rather than HTML", "GET", "/", "text/html;q=0.5, application/a2a+json", with, false},
		{"a stream rather than HTML", "GET", "/", "text/html;q=0.9, text/event-stream", with, false},
		{"no HTML", "GET", "/", "text/html;q=0, */*", with, false},
		{"a message", "POST", "/", browser, with, false},
		{"another path", "GET", "/stream", browser, with, false},
		{"the console is on another listener", "GET", "/", browser, elsewhere, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			resp, body := doOnce(t, tt.h, tt.method, tt.path, tt.accept)
			if tt.leads {
				if resp.StatusCode != http.StatusTemporaryRedirect || resp.Header.Get("Location") != "console/" || resp.Header.Get("Vary") != "Accept" {
					t.Errorf("%d %v", resp.StatusCode, resp.Header)
				}
				return
			}
			plain, plainBody := doOnce(t, without, tt.method, tt.path, tt.accept)
			got, want := []any{resp.StatusCode, resp.Header["Allow"], resp.Header.Get("Content-Type"), len(body)}, []any{plain.StatusCode, plain.Header["Allow"], plain.Header.Get("Content-Type"), len(plainBody)}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-without the console +with):\n%s", diff)
			}
			if isRoot := tt.path == "/" && tt.method == "GET" && tt.h == with; isRoot != (resp.Header.Get("Vary") == "Accept") {
				t.Errorf("Vary %q", resp.Header.Get("Vary"))
			}
		})
	}
}

// doOnce sends a request and follows no redirect.
func doOnce(t *testing.T, h *surfacetest.Fixture, method, path, accept string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, h.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// TestDist checks the built files: each gzip form equals its file, the page has no inline script or style, nothing
// evaluates text as a script, and the first page loads at most 260 kB.
func TestDist(t *testing.T) {
	t.Parallel()
	err := fs.WalkDir(os.DirFS("dist"), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".gz") {
			return err
		}
		raw, err := os.ReadFile(filepath.Join("dist", name))
		if err != nil {
			return err
		}
		r, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			return err
		}
		got, err := io.ReadAll(r)
		want, wantErr := os.ReadFile(filepath.Join("dist", strings.TrimSuffix(name, ".gz")))
		if !bytes.Equal(got, want) {
			t.Errorf("%s is another file: run make web", name)
		}
		return errors.Join(err, wantErr)
	})
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("dist/index.html")
	if err != nil {
		t.Fatal(err)
	}
	if inline := regexp.MustCompile(`(?i)<script(?:\s[^>]*)?>[^<]|<style| on\w+=| style=`).Find(page); inline != nil {
		t.Errorf("the page has an inline script or style: %s", inline)
	}
	total := 0
	for _, name := range listFirstLoad(t) {
		content, err := os.ReadFile(filepath.Join("dist", name))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte("new Function(")) || regexp.MustCompile(`\beval\(`).Match(content) {
			t.Errorf("%s evaluates text as a script", name)
		}
		compressed, err := os.ReadFile(filepath.Join("dist", name+".gz"))
		if err != nil {
			t.Fatal(err)
		}
		total += len(compressed)
	}
	t.Logf("the first page loads %d bytes", total)
	if total > 260_000 {
		t.Errorf("the first page loads %d bytes in gzip, at most 260,000 are allowed: load a screen later, or leave a library out", total)
	}
}

// sources are what dist is built of.
var sources = []string{"package.json", "package-lock.json", "tsconfig.json", "vite.config.ts", "index.html", "public", "src"}

// TestDistIsFresh builds the console from its lock file and checks that the committed files are equal.
func TestDistIsFresh(t *testing.T) {
	t.Parallel()
	npm, err := exec.LookPath("npm")
	if err != nil {
		dbtest.SkipMissing(t, "without npm the committed console is not compared with a fresh build")
	}
	folder := t.TempDir()
	for _, name := range sources {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			err = os.CopyFS(filepath.Join(folder, name), os.DirFS(name))
		} else {
			var content []byte
			if content, err = os.ReadFile(name); err == nil {
				err = os.WriteFile(filepath.Join(folder, name), content, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), npm, args...)
		cmd.Dir = folder
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"); err != nil {
		// EUSAGE: package.json and the lock file differ.
		if strings.Contains(out, "EUSAGE") {
			t.Fatal(out)
		}
		dbtest.SkipMissing(t, "the packages of the console cannot be had, so that it is not compared with a fresh build: "+out)
	}
	for _, script := range []string{"check", "build"} {
		if out, err := run("run", script); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	}
	if diff := cmp.Diff(readTree(t, filepath.Join(folder, "dist")), readTree(t, "dist"), cmp.Comparer(bytes.Equal)); diff != "" {
		t.Errorf("dist is not what its sources build, run make web (-fresh +committed):\n%.4000s", diff)
	}
}

// readTree returns the files below a folder by their path. Of gzip forms it has the names alone: zlib writes other bytes on
// other processors, and TestDist checks what they contain.
func readTree(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if all[name] = nil; !strings.HasSuffix(name, ".gz") {
			all[name], err = os.ReadFile(filepath.Join(folder, name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
