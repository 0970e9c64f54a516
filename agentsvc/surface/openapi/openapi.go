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

// With returns routes and behind them the one that tells of all of them, itself included.
func With(version string, routes []surface.Route) []surface.Route {
	own := surface.Route{Method: http.MethodGet, Pattern: Path, Kind: surface.Open}
	all := append(slices.Clip(routes), own)
	document, err := Document(version, all)
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

// Described lists the operations that are described, each by its method and pattern.
func Described() (keys []string) {
	d, err := read()
	if err != nil {
		return nil
	}
	for key := range d.Operations {
		keys = append(keys, key)
	}
	return keys
}

func read() (d descriptions, err error) {
	err = json.Unmarshal(descriptionsJSON, &d)
	return d, err
}

// object is a piece of the document.
type object = map[string]any

// Document returns the document of routes for a version of the service. Of a route that nobody described it tells what the table
// of routes knows.
func Document(version string, routes []surface.Route) ([]byte, error) {
	d, err := read()
	if err != nil {
		return nil, err
	}
	paths := object{}
	for _, r := range routes {
		key := r.Method + " " + r.Pattern
		about, ok := d.Operations[key]
		if !ok {
			about = description{Tag: "other", Summary: key}
		}
		at, _ := paths[r.Pattern].(object)
		if at == nil {
			at = object{}
			paths[r.Pattern] = at
		}
		at[strings.ToLower(r.Method)] = d.operation(r, about)
	}
	return json.Marshal(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Stoa", "version": version,
			"description": "Agents for many tenants. What is not below /admin answers below /apps/{app} as well, where the app must be the credential's.",
		},
		"servers": []any{object{"url": "/"}},
		"paths":   paths,
		"components": object{
			"schemas": d.Schemas,
			"securitySchemes": object{
				"bearer": object{"type": "http", "scheme": "bearer", "description": "A token or an API key of the app."},
				"admin":  object{"type": "http", "scheme": "bearer", "description": "The admin secret or a token of the platform's operator."},
			},
		},
	})
}

var parameter = regexp.MustCompile(`\{(\w+)\}`)

// operation returns the operation of a route.
func (d descriptions) operation(r surface.Route, about description) object {
	op := object{"operationId": id(r), "summary": about.Summary, "tags": []string{about.Tag}, "responses": d.responses(r, about), "security": security(r)}
	var params []any
	for _, m := range parameter.FindAllStringSubmatch(r.Pattern, -1) {
		params = append(params, d.parameter("path", m[1], true))
	}
	for _, name := range about.Query {
		params = append(params, d.parameter("query", name, false))
	}
	if r.Once {
		params = append(params, object{
			"name": "Idempotency-Key", "in": "header", "schema": object{"type": "string"}, "description": "Under one key the request takes effect once.",
		})
	}
	if params != nil {
		op["parameters"] = params
	}
	if about.Body != "" {
		op["requestBody"] = object{"content": object{"application/json": object{"schema": ref(about.Body)}}}
	}
	return op
}

func (d descriptions) parameter(in, name string, required bool) object {
	p := object{"name": name, "in": in, "schema": object{"type": "string"}, "description": d.Parameters[name]}
	if required {
		p["required"] = true
	}
	return p
}

// responses are what a route may answer. Errors of dialects with a form of their own are not shown.
func (d descriptions) responses(r surface.Route, about description) object {
	status := about.Status
	if status == 0 {
		status = http.StatusOK
	}
	ok := object{"description": http.StatusText(status)}
	content := object{}
	if about.Answer != "" {
		content["application/json"] = object{"schema": ref(about.Answer)}
	}
	if about.Kind != "" {
		content[about.Kind] = object{"schema": object{"type": "string"}}
	}
	if len(content) > 0 {
		ok["content"] = content
	}
	out := object{strconv.Itoa(status): ok}
	if about.Refused != "" {
		for _, wrong := range []int{http.StatusBadRequest, http.StatusNotFound} {
			out[strconv.Itoa(wrong)] = object{"description": http.StatusText(wrong), "content": object{"application/json": object{"schema": ref(about.Refused)}}}
		}
	}
	for _, other := range about.Also {
		shape := ref(about.Answer)
		if other >= http.StatusInternalServerError {
			shape = object{"anyOf": []any{shape, ref("Error")}}
		}
		out[strconv.Itoa(other)] = object{"description": http.StatusText(other), "content": object{"application/json": object{"schema": shape}}}
	}
	if r.Tell == nil {
		out["default"] = object{"description": "What went wrong", "content": object{"application/json": object{"schema": ref("Error")}}}
	}
	return out
}

// security is who may call a route.
func security(r surface.Route) []any {
	switch {
	case r.Kind == surface.Admin:
		return []any{object{"admin": []string{}}}
	case r.Kind == surface.Open, r.Signed:
		return []any{}
	case r.Discovery:
		return []any{object{}, object{"bearer": []string{}}}
	}
	return []any{object{"bearer": []string{}}}
}

func ref(schema string) object { return object{"$ref": "#/components/schemas/" + schema} }

var unnamed = regexp.MustCompile(`[^A-Za-z0-9]+`)

// id returns an operation's id, made of its method and pattern.
func id(r surface.Route) string {
	return strings.Trim(unnamed.ReplaceAllString(strings.ToLower(r.Method)+"_"+r.Pattern, "_"), "_")
}
