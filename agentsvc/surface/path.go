package surface

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"
)

// normalizePath gives every spelling of a path one form, so that a path is the same for routing and for authorization. Routes
// match the decoded path. Only a path with an encoded slash also has a RawPath, in which each segment is encoded in
// one way: such a slash is data of its segment and separates nothing.
func normalizePath(u *url.URL) {
	if u.RawPath == "" {
		return
	}
	segments := strings.Split(u.RawPath, "/")
	u.RawPath = ""
	encodedSlash := false
	for i, segment := range segments {
		// The server has decoded the whole path before, so each segment can be decoded.
		decoded, _ := url.PathUnescape(segment)
		encodedSlash = encodedSlash || strings.Contains(decoded, "/")
		segments[i] = url.PathEscape(decoded)
	}
	if encodedSlash {
		u.RawPath = strings.Join(segments, "/")
	}
}

// routePath returns the path that routes match, and by which an app is found.
func routePath(r *http.Request) string {
	if r.URL.RawPath != "" {
		return r.URL.RawPath
	}
	return r.URL.Path
}

// PathParam returns the decoded value of a parameter of the route's pattern, "" if the pattern has none of that name.
func PathParam(r *http.Request, name string) string {
	value := chi.URLParam(r, name)
	if r.URL.RawPath != "" {
		value, _ = url.PathUnescape(value)
	}
	return value
}

// CreatedPath returns the path of a resource that a POST to the path of r has created, for the header Location.
func CreatedPath(r *http.Request, id string) string {
	return r.URL.EscapedPath() + "/" + url.PathEscape(id)
}

// hasEmptyParam reports whether a parameter of the route's pattern is empty. Such a path names nothing: chi would match
// /admin/apps//budgets as the budgets of an app without a name.
func hasEmptyParam(r *http.Request) bool {
	if matched := chi.RouteContext(r.Context()); matched != nil {
		for _, value := range matched.URLParams.Values {
			if value == "" {
				return true
			}
		}
	}
	return false
}
