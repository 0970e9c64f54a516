package surface

import (
	"net/http"
	"slices"
	"strings"
)

// customVerbs has the custom verbs that routes have behind a pattern, such as ":cancel" behind /tasks/{}, of all
// methods. Its keys are patterns without the names of their parameters, see [shapeOf].
type customVerbs map[string][]string

func newCustomVerbs(routes []Route) customVerbs {
	all := customVerbs{}
	for _, route := range routes {
		for _, pattern := range append([]string{route.Pattern}, route.Aliases...) {
			pattern = shapeOf(pattern)
			if i := strings.LastIndexAny(pattern, ":/"); pattern[i] == ':' && !slices.Contains(all[pattern[:i]], pattern[i:]) {
				all[pattern[:i]] = append(all[pattern[:i]], pattern[i:])
			}
		}
	}
	return all
}

// withoutVerbs returns the handler of a route at a pattern whose last parameter could also hold a custom verb: the path
// of such a verb has only the methods of the verb, and every other one is answered with 405. The refused request passes
// the route's own authentication, so that the answer says no more than that of the route. serve is the route's handler.
//
// For a method that has the verb the router prefers the longer pattern, so these requests do not get here.
func (s *Server) withoutVerbs(route *Route, pattern string, serve http.HandlerFunc) http.HandlerFunc {
	verbs := s.verbs[shapeOf(pattern)]
	if len(verbs) == 0 {
		return serve
	}
	refusal := *route
	refusal.Pattern, refusal.Idempotent, refusal.Serve = routeUnknown, false, s.handleNoMethod
	refuse := s.serveRoute(&refusal)
	return func(w http.ResponseWriter, r *http.Request) {
		path := routePath(r)
		segment := path[strings.LastIndexByte(path, '/')+1:]
		isVerb := func(verb string) bool { return len(segment) > len(verb) && strings.HasSuffix(segment, verb) }
		if slices.ContainsFunc(verbs, isVerb) {
			refuse(w, r)
			return
		}
		serve(w, r)
	}
}
