// Package openapi builds the OpenAPI document (version 3.1) of the server and serves it at [Path]. Paths, security,
// parameters of path and query, idempotency, the media type of errors and most of their statuses follow from the table
// of routes, so they cannot differ from it. descriptions.json holds what that table does not contain: summaries, headers
// and the schemas of bodies, by method and pattern. Tests send requests to every route and compare what it accepts and
// answers with the document, so a new route must be described there.
package openapi

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"stoa/agentsvc/surface"
)

// Path is where the document is served.
const Path = "/api/openapi.json"

// WithDocument returns routes and the route of the document, which describes all of them including itself. The first
// request builds the document, which a start of the server need not wait for; if that fails, the route answers with the
// error.
func WithDocument(version string, routes []surface.Route) []surface.Route {
	documentRoute := surface.Route{Method: http.MethodGet, Pattern: Path, Kind: surface.Open}
	// Clip makes append copy, so that the caller's slice is not changed.
	all := append(slices.Clip(routes), documentRoute)
	build := sync.OnceValues(func() ([]byte, error) { return BuildDocument(version, all) })
	all[len(routes)].Serve = func(w http.ResponseWriter, _ *http.Request) error {
		document, err := build()
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document)
		return nil
	}
	return all
}

//go:embed descriptions.json
var descriptionsJSON []byte

// descriptions is the content of descriptions.json.
type descriptions struct {
	Operations map[string]description `json:"operations"` // by "METHOD pattern"
	Parameters map[string]string      `json:"parameters"` // descriptions of parameters and headers, by name
	// QueryAliases are other names under which operations read parameters of the query, with the names that are
	// documented. An operation that has both documents one, because the same name in two spellings would be the same
	// name of a generated type.
	QueryAliases map[string]string `json:"query_aliases"`
	// ParameterSchemas are the schemas of parameters and headers that are not just any text, by name.
	ParameterSchemas map[string]json.RawMessage `json:"parameter_schemas"`
	// Tags are the descriptions of tags, by name.
	Tags map[string]string `json:"tags"`
	// Calls are the methods of JSON-RPC endpoints, by the name of the schema of their requests, see addCallSchemas.
	Calls map[string][]rpcCall `json:"calls"`
	// Schemas are copied unchanged into components/schemas of the document.
	Schemas map[string]json.RawMessage `json:"schemas"`
}

// description is one operation: what the table of routes does not contain. Body is a name in Schemas or in Calls, "" = none.
type description struct {
	// ID is the operationId. Generated clients name their functions by it.
	ID      string `json:"id"`
	Tag     string `json:"tag"`
	Summary string `json:"summary"`
	Body    string `json:"body"`
	// BodyKinds are the other media types that the body may have, or all if Body is "".
	BodyKinds    []string `json:"body_kinds"`
	BodyOptional bool     `json:"body_optional"`
	// Scopes are those of which the caller needs one, where not the route but its handler demands them. Those of JSON-RPC endpoints
	// are in Calls.
	Scopes []string `json:"scopes"`
	// Headers are those that the operation reads, besides what follows from the route.
	Headers []string `json:"headers"`
	// Required are the parameters of the query and the headers without which the server refuses the request.
	Required []string `json:"required"`
	// Parameters are the descriptions of parameters that mean something else here than in other operations, ParameterSchemas
	// the schemas of those with other values.
	Parameters       map[string]string          `json:"parameters"`
	ParameterSchemas map[string]json.RawMessage `json:"schemas"`
	answerDescription
	errorDescription
}

// answerDescription is the part of a description about responses that are no errors. Answer, Event and the values of Also are
// names in Schemas, or Answer and Event that of the responses to Calls.
type answerDescription struct {
	// Answer is the schema of the response under Status (0 = 200), "" = none.
	Answer string `json:"answer"`
	// Media is the media type of Answer where it is not that of the protocol.
	Media  string `json:"media"`
	Status int    `json:"status"`
	// Also are the schemas of the responses under other statuses.
	Also map[int]string `json:"also"`
	// Empty is the status of the response to a JSON-RPC notification, 0 = the operation has none.
	Empty int `json:"empty"`
	// Kinds are the other media types that the response may have: of texts, of files, or of a stream.
	Kinds []string `json:"kinds"`
	// Event is the schema of the data of each server-sent event, required for a stream.
	Event string `json:"event"`
	// AnswerHeaders are those that the operation sets, besides what follows from the route.
	AnswerHeaders []string `json:"answer_headers"`
}

// errorDescription is the part of a description about errors. Error and Refused are names in Schemas.
type errorDescription struct {
	// Error is the schema of errors, "" = [defaultError].
	Error string `json:"error"`
	// Errors are the statuses of errors besides those that follow from the route.
	Errors []int `json:"errors"`
	// Refused is the schema of 400 and 404 where it is another one.
	Refused string `json:"refused"`
}

func readDescriptions() (d descriptions, err error) {
	r := json.NewDecoder(bytes.NewReader(descriptionsJSON))
	r.DisallowUnknownFields()
	err = r.Decode(&d)
	return d, err
}

// servers are the addresses below which the operations answer. They are at the top of the document alone, and a variable
// has no description: of the first, generators make a type for each operation, the second the validator of orval refuses.
var servers = []any{
	jsonObject{"url": "/", "description": "Every operation"},
	jsonObject{
		"url": "/apps/{app}", "description": "The operations of apps, which have the security bearer; the name is that of the credential's app",
		"variables": jsonObject{"app": jsonObject{"default": "default"}},
	},
}

// jsonObject is a part of the document. The document is built of maps because most of its objects have optional
// members.
type jsonObject = map[string]any

// BuildDocument returns the document of routes in JSON; version is that of the service. A route without a
// description appears with what the table of routes knows, under the tag other.
func BuildDocument(version string, routes []surface.Route) ([]byte, error) {
	d, err := readDescriptions()
	if err != nil {
		return nil, err
	}
	b := builder{descriptions: d, responses: jsonObject{}, headers: jsonObject{}}
	paths, schemas := jsonObject{}, jsonObject{}
	for name, schema := range d.Schemas {
		schemas[name] = schema
	}
	d.addCallSchemas(schemas)
	for _, r := range routes {
		key := r.Method + " " + r.Pattern
		described, ok := d.Operations[key]
		if !ok {
			described = description{ID: defaultID(r), Tag: "other", Summary: key}
		}
		at, _ := paths[r.Pattern].(jsonObject)
		if at == nil {
			at = jsonObject{}
			paths[r.Pattern] = at
		}
		at[strings.ToLower(r.Method)] = b.newOperation(operation{r, described})
	}
	return json.Marshal(jsonObject{
		"openapi": "3.1.0",
		"info": jsonObject{
			"title": "Stoa", "version": version, "license": jsonObject{"name": "Apache License 2.0", "identifier": "Apache-2.0"},
			"description": "Agents for many tenants. The operations of apps answer below /apps/{app} as well. What answers GET answers HEAD as well. The security of an operation names the scopes of which the caller needs one; " +
				"a message with a decision about a tool call needs tasks:approve instead.",
		},
		"servers": servers,
		"tags":    newTags(d.Tags),
		"paths":   paths,
		"components": jsonObject{
			"schemas": schemas, "responses": b.responses, "headers": b.headers,
			"securitySchemes": jsonObject{
				"bearer": jsonObject{"type": "http", "scheme": "bearer", "description": "A token or an API key of the app."},
				"admin":  jsonObject{"type": "http", "scheme": "bearer", "description": "The admin secret or a token of the platform's operator."},
			},
		},
	})
}

// newTags returns the Tag Objects of tags, by name.
func newTags(descriptions map[string]string) []any {
	tags := []any{}
	for _, name := range slices.Sorted(maps.Keys(descriptions)) {
		tags = append(tags, jsonObject{"name": name, "description": descriptions[name]})
	}
	return tags
}
