package a2a

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/surface/stream"
)

// binding is the REST binding of one version: it decodes requests, calls the shared methods of call.go and writes
// their results.
type binding struct {
	codec       *versionCodec    // codec10 or codec03REST
	options     Options          // of the routes
	encodeError apierror.Encoder // also used for an error that ends a stream
}

// restHandler answers a decoded call.
type restHandler func(w http.ResponseWriter, c *call) error

// unaryHandler returns the handler of a method with one response. A nil result becomes 204 No Content.
func (b binding) unaryHandler(m unaryMethod) restHandler {
	return func(w http.ResponseWriter, c *call) error {
		answer, err := m(c)
		if err != nil {
			return err
		}
		if answer == nil {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		return response.WriteMediaType(w, http.StatusOK, b.codec.mediaType, answer)
	}
}

// streamHandler returns the handler of a method with a stream. An error before the stream begins is an HTTP error; a
// later one is a last event named error with the body that the HTTP error would have had.
func (b binding) streamHandler(m streamMethod) restHandler {
	return func(w http.ResponseWriter, c *call) error {
		f, err := m(c)
		if err != nil {
			return err
		}
		fault := func(err error) any {
			_, body := b.encodeError(apierror.NewFault(surface.RequestID(c.r), err))
			return body
		}
		return c.writeEvents(w, f, stream.Encoder{EncodeError: fault, ErrorEventName: "error"}, func(body any) any { return body })
	}
}

// decodeCall decodes a request into a call: first the parameters query, then the body, which overrides them, then the
// path. It returns an error for another A2A-Version than the binding's.
func (b binding) decodeCall(r *http.Request, query []string) (*call, error) {
	c := &call{codec: b.codec, r: r, request: surface.RequestOf(r), options: b.options}
	if _, err := NegotiateVersion(r, b.codec.version); err != nil {
		return nil, err
	}
	if err := decodeQuery(r.URL.Query(), query, &c.params); err != nil {
		return nil, err
	}
	// ContentLength is -1 for a body of unknown length, which is then read; only a body known to be empty is
	// skipped.
	if r.ContentLength != 0 && r.Method == http.MethodPost {
		if err := surface.DecodeMessage(r, &c.params); err != nil {
			return nil, err
		}
	}
	c.path.task, c.path.config = surface.PathParam(r, "task"), surface.PathParam(r, "config")
	// The path parameters tenant and of are the alias patterns of [Routes].
	if tenant := surface.PathParam(r, "tenant"); tenant != "" {
		if of := surface.PathParam(r, "of"); of != "" {
			tenant += "/" + of
		}
		if c.Tenant != "" && c.Tenant != tenant {
			return nil, agentsvc.NewInvalidError("tenant", "is %.80q in the path and another in the request", tenant)
		}
		c.Tenant = tenant
	}
	return c, c.resolveAgent()
}

// The query parameters of REST requests: of all, of the one that reads a task, and of the one that lists tasks. Both
// spellings of a name are accepted in both versions.
var (
	callQuery = []string{"tenant", versionHeader}
	getQuery  = append(slices.Clip(callQuery), "historyLength", "history_length")
	listQuery = append(slices.Clip(getQuery),
		"contextId", "context_id", "status", "pageSize", "page_size", "pageToken", "page_token", "includeArtifacts", "include_artifacts",
		"statusTimestampAfter", "status_timestamp_after", "lastUpdatedAfter", "last_updated_after", "lastUpdatedTime", "last_updated_time")
)

// decodeQuery decodes the parameters names of the query into p. It converts them to a JSON object and decodes that
// like a body. The route refuses other parameters, or ignores them.
func decodeQuery(q url.Values, names []string, p *params) error {
	members := map[string]any{}
	for _, name := range names {
		if !q.Has(name) {
			continue
		}
		value := q.Get(name)
		switch name {
		case "historyLength", "history_length", "pageSize", "page_size":
			n, err := strconv.Atoi(value)
			if err != nil {
				return agentsvc.NewInvalidError(name, "must be a number")
			}
			members[name] = n
		case "includeArtifacts", "include_artifacts":
			b, err := decode.ParseBool(q, name)
			if err != nil {
				return err
			}
			members[name] = b
		case versionHeader: // read by NegotiateVersion
		default:
			members[name] = value
		}
	}
	body, err := json.Marshal(members)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, p)
}
