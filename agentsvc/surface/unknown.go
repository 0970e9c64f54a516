package surface

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/apierror"
)

// routeTable finds routes. routes is what [New] was given, verbs are those of their patterns; mux matches them.
type routeTable struct {
	routes []Route
	verbs  customVerbs
	mux    *chi.Mux
}

// findVerbs returns the custom verb that ends r's path, with its colon, and the verbs that routes have for the same
// resource. Both are empty if the path has no verb. Custom verbs are those of A2A's HTTP binding, such as message:send.
func (t *routeTable) findVerbs(r *http.Request) (verb string, known []string) {
	full := routePath(r)
	i := strings.LastIndexAny(full, ":/")
	if i < 0 || full[i] != ':' {
		return "", nil
	}
	path := strings.Split(full[:i], "/")
	for _, route := range t.routes {
		j := strings.LastIndexAny(route.Pattern, ":/")
		if route.Method != r.Method || route.Pattern[j] != ':' {
			continue
		}
		same := slices.EqualFunc(path, strings.Split(route.Pattern[:j], "/"), func(part, of string) bool {
			return part == of || strings.HasPrefix(of, "{")
		})
		if same {
			known = append(known, route.Pattern[j:])
		}
	}
	return full[i:], known
}

// handleNoPath returns the error for a path that no route has.
func (t *routeTable) handleNoPath(_ http.ResponseWriter, r *http.Request) error {
	return cmp.Or(t.checkVerb(r), apierror.ErrNoPath)
}

// checkVerb returns a "not found" error that lists the known verbs if r's path ends in an unknown one, else nil.
func (t *routeTable) checkVerb(r *http.Request) error {
	verb, known := t.findVerbs(r)
	if len(known) == 0 {
		return nil
	}
	return agentsvc.NewError(apierror.CodeNoEndpoint, "there is no %s here; there are %s", verb, strings.Join(known, ", "))
}

// handleNoMethod returns the error for a method that a path does not have and sets Allow to those that it has (RFC
// 9110, 15.5.6), besides OPTIONS, which every path has. A path that ends in a verb which no method has does not exist,
// though another route may match it as a parameter. The router also calls it for methods that no route has, on any path.
func (t *routeTable) handleNoMethod(w http.ResponseWriter, r *http.Request) error {
	allowed, ofVerb := t.listMethods(routePath(r))
	if !ofVerb {
		if err := t.checkVerb(r); err != nil {
			return err
		}
	}
	if len(allowed) == 0 {
		return apierror.ErrNoPath
	}
	w.Header()["Allow"] = allowed
	return apierror.NewMethodError(r.Method, allowed)
}

// listMethods returns the methods that a path has, and whether they are those of the custom verb that ends the path. Then
// methods for which that verb is a part of a parameter do not count: no resource has such a name.
func (t *routeTable) listMethods(path string) (methods []string, ofVerb bool) {
	byVerb := map[bool][]string{}
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if pattern := t.mux.Find(chi.NewRouteContext(), m, path); pattern != "" {
			hasVerb := pattern[strings.LastIndexAny(pattern, ":/")] == ':'
			byVerb[hasVerb] = append(byVerb[hasVerb], m)
		}
	}
	if methods = byVerb[true]; methods != nil {
		return methods, true
	}
	return byVerb[false], false
}

// findErrorEncoder returns how errors are encoded for a path, without the part that names the app, that no route serves: as by the route whose pattern has the most
// leading segments in common with the path, nil if none has any.
func (t *routeTable) findErrorEncoder(tenantPath string) (nearest apierror.Encoder) {
	path := splitPath(tenantPath)
	var best [4]int
	for _, route := range t.routes {
		for _, pattern := range append([]string{route.Pattern}, route.Aliases...) {
			rank := rankPattern(splitPath(pattern), path)
			// A path between several routes is more likely one of those that are no JSON-RPC endpoints.
			if route.EncodeError != nil {
				rank[3] = 1
			}
			if rank[0] > 0 && slices.Compare(rank[:], best[:]) > 0 {
				best, nearest = rank, route.EncodeError
			}
		}
	}
	return nearest
}

// rankPattern returns how near a pattern is to a path: the number of leading segments that are the same text, the number
// of those that match, and 1 if the pattern matches the path.
func rankPattern(pattern, path []string) (rank [4]int) {
	for i := range min(len(pattern), len(path)) {
		switch {
		case pattern[i] == path[i]:
			rank[0]++
		case !strings.HasPrefix(pattern[i], "{"):
			return rank
		}
		rank[1]++
	}
	if len(pattern) == len(path) {
		rank[2] = 1
	}
	return rank
}

func splitPath(path string) []string { return strings.Split(strings.Trim(path, "/"), "/") }

// limitHeaders wraps next with the bound [MaxHeader]. net/http, whose bound is maxReadHeader, would answer in plain text.
func (s *Server) limitHeaders(next http.Handler) http.Handler {
	refuse := func(http.ResponseWriter, *http.Request) error { return apierror.ErrHeadersTooLarge }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if countHeaderBytes(r) > MaxHeader {
			s.serveRoute(&Route{Pattern: routeUnknown, Kind: Open, EncodeError: s.nearestEncoder(r), Serve: refuse})(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// countHeaderBytes returns the size of the request line and the headers as HTTP/1.1 writes them.
func countHeaderBytes(r *http.Request) int {
	n := len(r.Method) + len(r.RequestURI) + len(r.Proto) + len("Host: ") + len(r.Host)
	for name, values := range r.Header {
		for _, value := range values {
			n += len(name) + len(": \r\n") + len(value)
		}
	}
	return n
}

// nearestEncoder is [routeTable.findErrorEncoder] for the path of r.
func (s *Server) nearestEncoder(r *http.Request) apierror.Encoder {
	return s.findErrorEncoder(s.options.Router.ParseAddress(r.Host, routePath(r)).Path)
}
