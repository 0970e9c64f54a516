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
	"net/http"
	"slices"
	"strings"

	"stoa/agentsvc/surface"
)

// Path is where the document is served.
const Path = "/api/openapi.json"

// WithDocument returns routes and the route of the document, which describes all of them including itself. The
// document is built once, here; if that fails, the route answers with the error.
func WithDocument(version string, routes []surface.Route) []surface.Route {
	documentRoute := surface.Route{Method: http.MethodGet, Pattern: Path, Kind: surface.Open}
	// Clip makes append copy, so that the caller's slice is not changed.
	all := append(slices.Clip(routes), documentRoute)
	document, err := BuildDocument(version, all)
	all[len(routes)].Serve = func(w http.ResponseWriter, _ *http.Request) error {
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
	// ParameterTypes are the types of parameters that are not strings, by name.
	ParameterTypes map[string]string `json:"parameter_types"`
	// Schemas are copied unchanged into components/schemas of the document.
	Schemas map[string]json.RawMessage `json:"schemas"`
}

// description is one operation: what the table of routes does not contain. Answer, Body, Error and Refused are names in
// Schemas, "" = none.
type description struct {
	Tag     string `json:"tag"`
	Summary string `json:"summary"`
	// Answer is the schema of the response under Status (0 = 200) and the statuses of Also.
	Answer string `json:"answer"`
	// Media is the media type of Answer where it is not that of the protocol.
	Media  string `json:"media"`
	Status int    `json:"status"`
	Also   []int  `json:"also"`
	// Empty is the status of the response to a JSON-RPC notification, 0 = the operation has none.
	Empty int `json:"empty"`
	// Kinds are the other media types that the response may have: of texts, or of a stream.
	Kinds []string `json:"kinds"`
	Body  string   `json:"body"`
	// BodyKinds are the other media types that the body may have, or all if Body is "".
	BodyKinds    []string `json:"body_kinds"`
	BodyOptional bool     `json:"body_optional"`
	// Headers are those that the operation reads, AnswerHeaders those that it sets, besides what follows from the route.
	Headers       []string `json:"headers"`
	AnswerHeaders []string `json:"answer_headers"`
	// Error is the schema of errors, "" = Error.
	Error string `json:"error"`
	// Errors are the statuses of errors besides those that follow from the route.
	Errors []int `json:"errors"`
	// Refused is the schema of 400 and 404 where it is not Error.
	Refused string `json:"refused"`
}

func readDescriptions() (d descriptions, err error) {
	r := json.NewDecoder(bytes.NewReader(descriptionsJSON))
	r.DisallowUnknownFields()
	err = r.Decode(&d)
	return d, err
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
	paths := jsonObject{}
	for _, r := range routes {
		key := r.Method + " " + r.Pattern
		described, ok := d.Operations[key]
		if !ok {
			described = description{Tag: "other", Summary: key}
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
			"title": "Stoa", "version": version,
			"description": "Agents for many tenants. The operations of apps answer below /apps/{app} as well. What answers GET answers HEAD as well.",
		},
		"servers": []any{jsonObject{"url": "/"}},
		"paths":   paths,
		"components": jsonObject{
			"schemas": d.Schemas, "responses": b.responses, "headers": b.headers,
			"securitySchemes": jsonObject{
				"bearer": jsonObject{"type": "http", "scheme": "bearer", "description": "A token or an API key of the app."},
				"admin":  jsonObject{"type": "http", "scheme": "bearer", "description": "The admin secret or a token of the platform's operator."},
			},
		},
	})
}
