package mutation

import (
	"mime"
	"net/http"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/response"
)

// yamlSuffix ends the entity tag of a configuration in YAML: two representations of one state have different tags (RFC
// 9110, 8.8.3). In If-Match both stand for that state.
const yamlSuffix = "-yaml"

// ParseIfMatch returns the tags in If-Match, of which one must be current; nil for any state. A weak tag is kept with its
// prefix, so that it matches none (RFC 9110, 13.1.1). An empty header is an error: the client wanted a condition, and
// without it the change would be made in any state.
func ParseIfMatch(r *http.Request) (tags []string, err error) {
	lines := r.Header.Values("If-Match")
	given := strings.TrimSpace(strings.Join(lines, ","))
	if len(lines) == 0 || given == "*" {
		return nil, nil
	}
	for tag := range strings.SplitSeq(given, ",") {
		tag = strings.TrimSpace(tag)
		inner, opened := strings.CutPrefix(strings.TrimPrefix(tag, "W/"), `"`)
		inner, closed := strings.CutSuffix(inner, `"`)
		switch {
		case !opened || !closed:
			return nil, agentsvc.NewInvalidError("If-Match", `must be an ETag as it was answered, in quotes, such as "3"`)
		case strings.HasPrefix(tag, "W/"):
			tags = append(tags, tag)
		default:
			tags = append(tags, strings.TrimSuffix(inner, yamlSuffix))
		}
	}
	return tags, nil
}

// acceptsYAML reports whether the first of YAML and JSON in Accept is YAML. Quality values are ignored.
func acceptsYAML(r *http.Request) bool {
	for accepted := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		switch kind, _, _ := strings.Cut(accepted, ";"); strings.ToLower(strings.TrimSpace(kind)) {
		case "application/yaml", "application/x-yaml", "text/yaml":
			return true
		case "application/json":
			return false
		}
	}
	return false
}

// WriteConfig answers with a configuration in the form that Accept asks for: its text, or encode's result as JSON. tag
// identifies the state; a client that has it gets 304.
func WriteConfig(w http.ResponseWriter, r *http.Request, tag string, text []byte, encode func() error) error {
	w.Header().Add("Vary", "Accept")
	asYAML := acceptsYAML(r)
	if asYAML {
		tag += yamlSuffix
	}
	switch {
	case response.WriteNotModified(w, r, tag):
		return nil
	case asYAML && text == nil:
		return agentsvc.NewError(agentsvc.CodePrecondition, "the stored configuration cannot be read as YAML any more: replace it")
	case asYAML:
		return response.WriteYAML(w, text)
	}
	return encode()
}

// CheckConfigType refuses a body that is neither YAML nor JSON.
func CheckConfigType(r *http.Request) error {
	given := r.Header.Get("Content-Type")
	kind, _, err := mime.ParseMediaType(given)
	if given == "" || err == nil && (strings.HasSuffix(kind, "yaml") || strings.HasSuffix(kind, "json")) {
		return nil
	}
	return agentsvc.NewInvalidError("Content-Type", "must be application/yaml or application/json")
}
