package a2a

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// binding is the REST binding of a version.
type binding struct {
	codec       *versionCodec
	blockFor    time.Duration
	encodeError surface.ErrorEncoder
}

// unaryHandler returns the handler of a method.
func (b binding) unaryHandler(m unaryMethod) surface.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		c, err := b.decodeCall(r)
		if err != nil {
			return err
		}
		answer, err := m(c)
		if err != nil {
			return err
		}
		if answer == nil {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		return surface.WriteMediaType(w, b.codec.mediaType, answer)
	}
}

// streamHandler returns the handler of a method whose answer is a stream.
func (b binding) streamHandler(m streamMethod) surface.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		c, err := b.decodeCall(r)
		if err != nil {
			return err
		}
		f, err := m(c)
		if err != nil {
			return err
		}
		fault := func(err error) any {
			_, body := b.encodeError(surface.NewFault(surface.RequestID(r), err))
			return body
		}
		return c.writeEvents(w, f, surface.StreamEncoder{EncodeError: fault, ErrorEventName: "error"}, func(body any) any { return body })
	}
}

// decodeCall reads a request: the query, the path, and the body where there is one.
func (b binding) decodeCall(r *http.Request) (*call, error) {
	c := &call{codec: b.codec, r: r, request: surface.RequestOf(r), blockFor: b.blockFor}
	if _, err := NegotiateVersion(r, b.codec.version); err != nil {
		return nil, err
	}
	if err := decodeQuery(r.URL.Query(), &c.params); err != nil {
		return nil, err
	}
	if r.ContentLength != 0 && r.Method == http.MethodPost {
		if err := surface.DecodeMessage(r, &c.params); err != nil {
			return nil, err
		}
	}
	c.path.task, c.path.toPushConfig = surface.PathParam(r, "task"), surface.PathParam(r, "config")
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

// decodeQuery reads what a query asks for into p. Names that are not known are passed over.
func decodeQuery(q url.Values, p *params) error {
	members := map[string]any{}
	for name := range q {
		value := q.Get(name)
		switch name {
		case "historyLength", "history_length", "pageSize", "page_size":
			n, err := strconv.Atoi(value)
			if err != nil {
				return agentsvc.NewInvalidError(name, "must be a number")
			}
			members[name] = n
		case "includeArtifacts", "include_artifacts":
			b, err := strconv.ParseBool(value)
			if err != nil {
				return agentsvc.NewInvalidError(name, "must be true or false")
			}
			members[name] = b
		case "tenant", "contextId", "context_id", "status", "pageToken", "page_token",
			"statusTimestampAfter", "status_timestamp_after", "lastUpdatedAfter", "last_updated_after", "lastUpdatedTime", "last_updated_time":
			members[name] = value
		}
	}
	body, err := json.Marshal(members)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, p)
}
