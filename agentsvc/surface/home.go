package surface

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// leadBrowsers wraps the handler of methods that a path does not have: it leads browsers from the root to the home page
// before they are asked for a credential. GET at the root is no route, so that Allow and the answer of every other client are
// those of a server without pages.
func (s *Server) leadBrowsers(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		isRead := r.Method == http.MethodGet || r.Method == http.MethodHead
		if s.options.FindHomePage == nil || !isRead || r.URL.Path != "/" {
			next(w, r)
			return
		}
		home := s.options.FindHomePage(r)
		if home == "" {
			next(w, r)
			return
		}
		w.Header().Add("Vary", "Accept")
		if !prefersHTML(r) {
			next(w, r)
			return
		}
		recordOf(r).route = "/"
		w.Header().Set("Location", home)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
}

// prefersHTML reports whether a request names HTML in Accept, before every form of JSON and streams of events. Of two types
// of the same weight the first counts. Ranges such as */* are what API clients send.
func prefersHTML(r *http.Request) bool {
	best, isHTML := 0.0, false
	for accepted := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		kind, params, err := mime.ParseMediaType(accepted)
		if err != nil {
			continue
		}
		weight := 1.0
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
			weight = q
		}
		html := kind == "text/html"
		api := kind == "application/json" || strings.HasSuffix(kind, "+json") || kind == "text/event-stream"
		if (html || api) && weight > best {
			best, isHTML = weight, html
		}
	}
	return isHTML
}
