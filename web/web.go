// Package web has the console: pages with which people try agents, follow tasks and decide what waits, in a browser. It
// serves the files of dist, which `make web` builds from the sources in this folder (React and Mantine, see docs/console.md).
// They are committed, so that building Stoa needs Go alone.
//
// The pages have no power of their own: they call the public API with the credential that their user types in.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
)

// Path is where the console is served.
const Path = "/console/"

//go:embed dist
var dist embed.FS

// newPolicy returns the policy that lets the pages load what Stoa serves, call its API and the OpenID provider where
// people sign in, and nothing else: no other host, no inline script, no inline style, no frame.
func newPolicy(o Options) string {
	connect := "'self'"
	for _, address := range o.SignInURLs {
		if origin := originOf(address); origin != "" && !slices.Contains(strings.Fields(connect), origin) {
			connect += " " + origin
		}
	}
	return "default-src 'none'; script-src 'self'; style-src 'self'; connect-src " + connect + "; img-src 'self' data:; " +
		"font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
}

// hostPattern are the hosts that may stand in a policy. Another character could end its directive.
var hostPattern = regexp.MustCompile(`^[A-Za-z0-9.-]+(:[0-9]+)?$|^\[[0-9A-Fa-f:]+\](:[0-9]+)?$`)

// originOf returns scheme and host of an address, "" if it has none that a policy can name.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || !hostPattern.MatchString(u.Host) {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// Options are what the pages need of their server.
type Options struct {
	// SignInURLs are addresses at the OpenID provider where people sign in: its issuer and its keys.
	SignInURLs []string
	// At is the address of the only listener on which the pages exist; nil = all listeners.
	At *net.TCPAddr
}

// file is a file of dist. compressed is nil if no gzip form was built.
type file struct {
	content, compressed []byte
	mediaType, etag     string
}

// files are the files of dist by their path in it. They do not change.
type files map[string]file

// site serves the files under a policy.
type site struct {
	files  files
	policy string
	at     *net.TCPAddr
}

// isHere reports whether the pages exist on the listener that got a request.
func (s site) isHere(r *http.Request) bool {
	if s.at == nil {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.Port == s.at.Port && (s.at.IP.IsUnspecified() || local.IP.Equal(s.at.IP))
}

// loadFiles reads every file of tree. A name.gz is the gzip form of name.
func loadFiles(tree fs.FS) (files, error) {
	found := files{}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) == ".gz" {
			return err
		}
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		// Without a gzip form compressed stays nil.
		compressed, _ := fs.ReadFile(tree, name+".gz")
		sum := sha256.Sum256(content)
		found[name] = file{content, compressed, mediaType(name), hex.EncodeToString(sum[:16])}
		return nil
	})
	return found, err
}

// mediaType returns the media type of a file by its name. The machine's table of types must not decide about scripts: a
// browser refuses one of another type (X-Content-Type-Options).
func mediaType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	if known := mime.TypeByExtension(path.Ext(name)); known != "" {
		return known
	}
	return "application/octet-stream"
}

// FindHomePage returns where the console is, relative to the root, or "" if it is not on the listener that got the request.
func (o Options) FindHomePage(r *http.Request) string {
	if !(site{at: o.At}).isHere(r) {
		return ""
	}
	return strings.TrimPrefix(Path, "/")
}

// Routes returns the routes of the console. They need no credential: the files are the same for everyone, and hold
// nothing of an app.
func Routes(o Options) ([]surface.Route, error) {
	tree, err := fs.Sub(dist, "dist")
	if err != nil {
		return nil, err
	}
	found, err := loadFiles(tree)
	if err != nil {
		return nil, err
	}
	pages := site{found, newPolicy(o), o.At}
	return []surface.Route{
		{Method: http.MethodGet, Pattern: strings.TrimSuffix(Path, "/"), Kind: surface.Open, Serve: pages.redirect, AnyQuery: true},
		// The query of a page belongs to its script.
		{Method: http.MethodGet, Pattern: Path + "*", Aliases: []string{Path}, Kind: surface.Open, Serve: pages.serveFile, AnyQuery: true},
	}, nil
}

// redirect answers the path without the slash. The target is relative, since a proxy may serve Stoa below another path.
func (s site) redirect(w http.ResponseWriter, r *http.Request) error {
	if !s.isHere(r) {
		return apierror.ErrNoPath
	}
	w.Header().Set("Location", strings.TrimPrefix(Path, "/"))
	w.WriteHeader(http.StatusTemporaryRedirect)
	return nil
}

// serveFile answers with a file of dist, and with index.html for the paths of pages, which its script shows. A missing
// asset is not found: with a page in its place the browser would report a broken script.
func (s site) serveFile(w http.ResponseWriter, r *http.Request) error {
	if !s.isHere(r) {
		return apierror.ErrNoPath
	}
	name := strings.TrimPrefix(r.URL.Path, Path)
	found, ok := s.files[name]
	if !ok {
		if strings.HasPrefix(name, "assets/") {
			return apierror.ErrNoPath
		}
		name, found = "index.html", s.files["index.html"]
	}
	h := w.Header()
	h.Set("Content-Security-Policy", s.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Content-Type", found.mediaType)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	// Names of assets have a hash of their content.
	if strings.HasPrefix(name, "assets/") {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	content, etag := found.content, found.etag
	if found.compressed != nil && acceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		content, etag = found.compressed, etag+"-gzip"
	}
	h.Set("ETag", `"`+etag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	return nil
}

// acceptsGzip reports whether the client accepts gzip. A weight of 0 refuses it (RFC 9110, 12.5.3).
func acceptsGzip(r *http.Request) bool {
	return slices.ContainsFunc(strings.Split(r.Header.Get("Accept-Encoding"), ","), func(coding string) bool {
		name, weight, _ := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";")
		return name == "gzip" && (weight == "" || strings.Trim(weight, "q=0.") != "")
	})
}
