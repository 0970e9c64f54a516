// Package openapi tells what the server answers as an OpenAPI document (version 3.1). The paths, who may call and what a request
// may carry follow from the table of routes; descriptions.json holds what that table does not know: what an operation is for, and
// the shapes of bodies.
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

// WithDocument returns routes and behind them the one that tells of all of them, itself included.
func WithDocument(version string, routes []surface.Route) []surface.Route {
	documentRoute := surface.Route{Method: http.MethodGet, Pattern: Path, Kind: surface.Open}
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

// descriptions are what the table of routes does not know.
type descriptions struct {
	Operations map[string]description     `json:"operations"` // by method and pattern
	Parameters map[string]string          `json:"parameters"` // of paths and queries, by name
	Schemas    map[string]json.RawMessage `json:"schemas"`
}

// description is one operation. Answer, Body and Refused name schemas, "" = none: Refused is of what a request that is bad, or for
// what is not there, is told where that is not the same as elsewhere. Also are other statuses with the same answer; Kind is the media
// type of an answer that is not JSON, or that may be a stream instead.
type description struct {
	Tag     string   `json:"tag"`
	Summary string   `json:"summary"`
	Answer  string   `json:"answer"`
	Refused string   `json:"refused"`
	Body    string   `json:"body"`
	Query   []string `json:"query"`
	Status  int      `json:"status"`
	Also    []int    `json:"also"`
	Kind    string   `json:"kind"`
}

// DescribedOperations lists the operations that are described, each by its method and pattern.
func DescribedOperations() (keys []string) {
	d, err := readDescriptions()
	if err != nil {
		return nil
	}
	for key := range d.Operations {
		keys = append(keys, key)
	}
	return keys
}

func readDescriptions() (d descriptions, err error) {
	err = json.Unmarshal(descriptionsJSON, &d)
	return d, err
}

// jsonObject is a piece of the document.
type jsonObject = map[string]any

// BuildDocument returns the document of routes for a version of the service. Of a route that nobody described it tells what the table
// of routes knows.
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

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// newOperation returns the operation of a route.
func (d descriptions) newOperation(r surface.Route, operationDescription description) jsonObject {
	op := jsonObject{"operationId": operationID(r), "summary": operationDescription.Summary, "tags": []string{operationDescription.Tag}, "responses": d.newResponses(r, operationDescription), "security": newSecurity(r)}
	var params []any
	for _, m := range pathParameter.FindAllStringSubmatch(r.Pattern, -1) {
		params = append(params, d.newParameter("path", m[1], true))
	}
	for _, name := range operationDescription.Query {
		params = append(params, d.newParameter("query", name, false))
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
		op["requestBody"] = jsonObject{"content": jsonObject{"application/json": jsonObject{"schema": schemaRef(operationDescription.Body)}}}
	}
	return op
}

func (d descriptions) newParameter(in, name string, required bool) jsonObject {
	p := jsonObject{"name": name, "in": in, "schema": jsonObject{"type": "string"}, "description": d.Parameters[name]}
	if required {
		p["required"] = true
	}
	return p
}

// newResponses are what a route may answer. Errors of dialects with a form of their own are not shown.
func (d descriptions) newResponses(r surface.Route, operationDescription description) jsonObject {
	status := operationDescription.Status
	if status == 0 {
		status = http.StatusOK
	}
	ok := jsonObject{"description": http.StatusText(status)}
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
		if other >= http.StatusInternalServerError {
			shape = jsonObject{"anyOf": []any{shape, schemaRef("Error")}}
		}
		out[strconv.Itoa(other)] = jsonObject{"description": http.StatusText(other), "content": jsonObject{"application/json": jsonObject{"schema": shape}}}
	}
	if r.EncodeError == nil {
		out["default"] = jsonObject{"description": "What went wrong", "content": jsonObject{"application/json": jsonObject{"schema": schemaRef("Error")}}}
	}
	return out
}

// newSecurity is who may call a route.
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

func schemaRef(schema string) jsonObject { return jsonObject{"$ref": "#/components/schemas/" + schema} }

var nonAlphanumeric = regexp.MustCompile(`[^A-Za-z0-9]+`)

// operationID returns an operation's id, made of its method and pattern.
func operationID(r surface.Route) string {
	return strings.Trim(nonAlphanumeric.ReplaceAllString(strings.ToLower(r.Method)+"_"+r.Pattern, "_"), "_")
}
