// Package openapi builds the OpenAPI document (version 3.1) of the server and serves it at [Path]. Paths, security,
// path parameters and idempotency follow from the table of routes, so they cannot differ from it. descriptions.json
// holds what that table does not contain: summaries, query parameters and the schemas of bodies, by method and
// pattern. A test compares both, so a new route must be described there.
package openapi

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
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
	// Schemas are copied unchanged into components/schemas of the document.
	Schemas map[string]json.RawMessage `json:"schemas"`
}

// description is one operation. Answer, Body and Refused are names in Schemas, "" = none.
type description struct {
	Tag     string `json:"tag"`
	Summary string `json:"summary"`
	// Answer is the schema of the response under Status (0 = 200) and the statuses of Also.
	Answer string `json:"answer"`
	// Refused is the schema of 400 and 404 where it is not the common one.
	Refused string `json:"refused"`
	Body    string `json:"body"`
	// BodyKind is a media type, other than JSON, that the body may have.
	BodyKind string   `json:"body_kind"`
	Query    []string `json:"query"`
	Headers  []string `json:"headers"`
	Status   int      `json:"status"`
	Also     []int    `json:"also"`
	// Empty is the status of the response to a JSON-RPC notification, 0 = the operation has none.
	Empty int `json:"empty"`
	// Kind is the media type of a response that is not JSON, or of a stream that the response may be instead.
	Kind string `json:"kind"`
}

func readDescriptions() (d descriptions, err error) {
	err = json.Unmarshal(descriptionsJSON, &d)
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
	paths := jsonObject{}
	for _, r := range routes {
		key := r.Method + " " + r.Pattern
		operationDescription, ok := d.Operations[key]
		if !ok {
			operationDescription = description{Tag: "other", Summary: key}
		}
		at, _ := paths[r.Pattern].(jsonObject)
		if at == nil {
			at = jsonObject{}
			paths[r.Pattern] = at
		}
		at[strings.ToLower(r.Method)] = d.newOperation(r, operationDescription)
	}
	return json.Marshal(jsonObject{
		"openapi": "3.1.0",
		"info": jsonObject{
			"title": "Stoa", "version": version,
			"description": "Agents for many tenants. What is not below /admin answers below /apps/{app} as well, where the app must be the credential's.",
		},
		"servers": []any{jsonObject{"url": "/"}},
		"paths":   paths,
		"components": jsonObject{
			"schemas": d.Schemas,
			"securitySchemes": jsonObject{
				"bearer": jsonObject{"type": "http", "scheme": "bearer", "description": "A token or an API key of the app."},
				"admin":  jsonObject{"type": "http", "scheme": "bearer", "description": "The admin secret or a token of the platform's operator."},
			},
		},
	})
}

// pathParameter matches a parameter of a route's pattern.
var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// newOperation returns the Operation Object of a route.
func (d descriptions) newOperation(r surface.Route, operationDescription description) jsonObject {
	op := jsonObject{"operationId": operationID(r), "summary": operationDescription.Summary, "tags": []string{operationDescription.Tag}, "responses": d.newResponses(r, operationDescription), "security": newSecurity(r)}
	var params []any
	for _, m := range pathParameter.FindAllStringSubmatch(r.Pattern, -1) {
		params = append(params, d.newParameter("path", m[1], true))
	}
	for _, name := range operationDescription.Query {
		params = append(params, d.newParameter("query", name, false))
	}
	for _, name := range operationDescription.Headers {
		params = append(params, d.newParameter("header", name, false))
	}
	if r.Idempotent {
		params = append(params, jsonObject{
			"name": "Idempotency-Key", "in": "header", "schema": jsonObject{"type": "string"}, "description": "Under one key the request takes effect once.",
		})
	}
	if params != nil {
		op["parameters"] = params
	}
	if operationDescription.Body != "" {
		content := jsonObject{"application/json": jsonObject{"schema": schemaRef(operationDescription.Body)}}
		if operationDescription.BodyKind != "" {
			content[operationDescription.BodyKind] = jsonObject{"schema": jsonObject{"type": "string"}}
		}
		op["requestBody"] = jsonObject{"content": content}
	}
	return op
}

// newParameter returns a Parameter Object; in is path, query or header. Path parameters must be marked as required (OpenAPI
// 3.1, Parameter Object).
func (d descriptions) newParameter(in, name string, required bool) jsonObject {
	p := jsonObject{"name": name, "in": in, "schema": jsonObject{"type": "string"}, "description": d.Parameters[name]}
	if required {
		p["required"] = true
	}
	return p
}

// newResponses returns the responses of a route. Routes with an error format of their own (EncodeError) have no
// default response, because the schema Error would be wrong for them.
func (d descriptions) newResponses(r surface.Route, operationDescription description) jsonObject {
	status := operationDescription.Status
	if status == 0 {
		status = http.StatusOK
	}
	ok := jsonObject{"description": http.StatusText(status)}
	// A token is stored nowhere, so that no address shows it.
	if status == http.StatusCreated && operationDescription.Answer != "Token" {
		ok["headers"] = jsonObject{"Location": jsonObject{"required": true, "description": "The path of what was created", "schema": jsonObject{"type": "string", "format": "uri-reference"}}}
	}
	content := jsonObject{}
	if operationDescription.Answer != "" {
		content["application/json"] = jsonObject{"schema": schemaRef(operationDescription.Answer)}
	}
	if operationDescription.Kind != "" {
		content[operationDescription.Kind] = jsonObject{"schema": jsonObject{"type": "string"}}
	}
	if len(content) > 0 {
		ok["content"] = content
	}
	out := jsonObject{strconv.Itoa(status): ok}
	if operationDescription.Refused != "" {
		for _, errorStatus := range []int{http.StatusBadRequest, http.StatusNotFound} {
			out[strconv.Itoa(errorStatus)] = jsonObject{"description": http.StatusText(errorStatus), "content": jsonObject{"application/json": jsonObject{"schema": schemaRef(operationDescription.Refused)}}}
		}
	}
	for _, other := range operationDescription.Also {
		shape := schemaRef(operationDescription.Answer)
		// These statuses are also used for errors of the server.
		if other >= http.StatusInternalServerError {
			shape = jsonObject{"anyOf": []any{shape, schemaRef("Error")}}
		}
		out[strconv.Itoa(other)] = jsonObject{"description": http.StatusText(other), "content": jsonObject{"application/json": jsonObject{"schema": shape}}}
	}
	if empty := operationDescription.Empty; empty != 0 {
		out[strconv.Itoa(empty)] = jsonObject{"description": http.StatusText(empty) + ": to a request without an id"}
	}
	if r.EncodeError == nil {
		out["default"] = jsonObject{"description": "What went wrong", "content": jsonObject{"application/json": jsonObject{"schema": schemaRef("Error")}}}
	}
	return out
}

// newSecurity returns the security requirements of a route: a list of alternatives, where {} means that no
// credential is needed and an empty list that none is accepted. Signed routes verify a signature, which OpenAPI
// cannot describe.
func newSecurity(r surface.Route) []any {
	switch {
	case r.Kind == surface.Admin:
		return []any{jsonObject{"admin": []string{}}}
	case r.Kind == surface.Open, r.Signed:
		return []any{}
	case r.Discovery:
		return []any{jsonObject{}, jsonObject{"bearer": []string{}}}
	}
	return []any{jsonObject{"bearer": []string{}}}
}

// schemaRef returns a reference to a schema of descriptions.json.
func schemaRef(schema string) jsonObject { return jsonObject{"$ref": "#/components/schemas/" + schema} }

var nonAlphanumeric = regexp.MustCompile(`[^A-Za-z0-9]+`)

// operationID returns a unique ID of a route in snake_case, such as get_agents_agent; generated clients name their
// functions by it.
func operationID(r surface.Route) string {
	return strings.Trim(nonAlphanumeric.ReplaceAllString(strings.ToLower(r.Method)+"_"+r.Pattern, "_"), "_")
}
