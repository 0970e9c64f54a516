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
	as       *vocabulary
	blockFor time.Duration
	tell     surface.Telling
}

// answer returns the handler of a method.
func (b binding) answer(m method) surface.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		c, err := b.call(r)
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
		return surface.WriteKind(w, b.as.kind, answer)
	}
}

// open returns the handler of a method whose answer is a stream.
func (b binding) open(m opening) surface.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		c, err := b.call(r)
		if err != nil {
			return err
		}
		f, err := m(c)
		if err != nil {
			return err
		}
		fault := func(err error) any {
			_, body := b.tell(surface.FaultOf(surface.RequestID(r), err))
			return body
		}
		return c.tell(w, f, surface.Dialect{Fault: fault, FaultName: "error"}, func(body any) any { return body })
	}
}

// call reads a request: the query, the path, and the body where there is one.
func (b binding) call(r *http.Request) (*call, error) {
	c := &call{as: b.as, r: r, v: surface.VisitOf(r), blockFor: b.blockFor}
	if _, err := Spoken(r, b.as.version); err != nil {
		return nil, err
	}
	if err := asked(r.URL.Query(), &c.params); err != nil {
		return nil, err
	}
	if r.ContentLength != 0 && r.Method == http.MethodPost {
		if err := surface.DecodeMessage(r, &c.params); err != nil {
			return nil, err
		}
	}
	c.path.task, c.path.push = surface.Param(r, "task"), surface.Param(r, "config")
	if tenant := surface.Param(r, "tenant"); tenant != "" {
		if of := surface.Param(r, "of"); of != "" {
			tenant += "/" + of
		}
		if c.Tenant != "" && c.Tenant != tenant {
			return nil, agentsvc.Invalid("tenant", "is %.80q in the path and another in the request", tenant)
		}
		c.Tenant = tenant
	}
	return c, c.address()
}

// asked reads what a query asks for into p. Names that are not known are passed over.
func asked(q url.Values, p *params) error {
	members := map[string]any{}
	for name := range q {
		value := q.Get(name)
		switch name {
		case "historyLength", "history_length", "pageSize", "page_size":
			n, err := strconv.Atoi(value)
			if err != nil {
				return agentsvc.Invalid(name, "must be a number")
			}
			members[name] = n
		case "includeArtifacts", "include_artifacts":
			b, err := strconv.ParseBool(value)
			if err != nil {
				return agentsvc.Invalid(name, "must be true or false")
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
