package openapi

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
)

// operation is a route and its description.
type operation struct {
	surface.Route
	description
}

// idempotencyKey is the header of requests that take effect once. Those of Idempotent routes have it, and messages.
const idempotencyKey = "Idempotency-Key"

// honoursKey reports whether the operation takes effect once under an Idempotency-Key.
func (o operation) honoursKey() bool {
	return o.Idempotent || slices.Contains(o.Headers, idempotencyKey)
}

// requestHeaders returns the headers that the operation reads, sorted.
func (o operation) requestHeaders() []string {
	all := append(slices.Clone(o.Headers), "X-Request-Id")
	if o.Idempotent {
		all = append(all, idempotencyKey)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// mediaType returns the media type of the operation's JSON: that of its errors, unless the description has another for
// answers.
func (o operation) mediaType() string {
	if o.Media != "" {
		return o.Media
	}
	return o.errorMediaType()
}

// errorMediaType returns the media type of errors, which the route's encoder decides.
func (o operation) errorMediaType() string {
	if o.EncodeError != nil {
		_, body := o.EncodeError(apierror.NewFault("", apierror.ErrNoPath))
		if own, ok := body.(interface{ MediaType() string }); ok {
			return own.MediaType()
		}
	}
	return "application/json"
}

// builder builds the operations of a document and collects the responses and headers that they refer to.
type builder struct {
	descriptions
	responses, headers jsonObject
}

// tenantServers are the addresses of the operations of apps, of which the second also names the app.
var tenantServers = []any{
	jsonObject{"url": "/"},
	jsonObject{"url": "/apps/{app}", "variables": jsonObject{"app": jsonObject{"default": "default", "description": "The name of the app; it must be the credential's"}}},
}

// pathParameter matches a parameter of a route's pattern.
var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// newOperation returns the Operation Object of an operation. Aliases are in its description and not paths of their own:
// generated clients would have each operation several times.
func (b builder) newOperation(o operation) jsonObject {
	op := jsonObject{"operationId": operationID(o.Route), "summary": o.Summary, "tags": []string{o.Tag}, "responses": b.newResponses(o), "security": newSecurity(o.Route)}
	if o.Kind == surface.Tenant {
		op["servers"] = tenantServers
	}
	if len(o.Aliases) > 0 {
		op["description"] = "Also answers at " + strings.Join(o.Aliases, " and ") + "."
	}
	var params []any
	for _, m := range pathParameter.FindAllStringSubmatch(o.Pattern, -1) {
		params = append(params, b.newParameter("path", m[1]))
	}
	for _, name := range o.Query {
		params = append(params, b.newParameter("query", name))
	}
	for _, name := range o.requestHeaders() {
		params = append(params, b.newParameter("header", name))
	}
	op["parameters"] = params
	if o.Body != "" || len(o.BodyKinds) > 0 {
		content := jsonObject{}
		if o.Body != "" {
			content["application/json"] = jsonObject{"schema": schemaRef(o.Body)}
		}
		for _, kind := range o.BodyKinds {
			content[kind] = jsonObject{"schema": jsonObject{"type": "string"}}
		}
		op["requestBody"] = jsonObject{"content": content, "required": !o.BodyOptional}
	}
	return op
}

// newParameter returns a Parameter Object; in is path, query or header. Path parameters must be marked as required (OpenAPI
// 3.1, Parameter Object).
func (b builder) newParameter(in, name string) jsonObject {
	p := jsonObject{"name": name, "in": in, "schema": b.parameterSchema(name), "description": b.Parameters[name]}
	if in == "path" {
		p["required"] = true
	}
	return p
}

// parameterSchema returns the schema of a parameter or a header.
func (b builder) parameterSchema(name string) jsonObject {
	if kind := b.ParameterTypes[name]; kind != "" {
		return jsonObject{"type": kind}
	}
	return jsonObject{"type": "string"}
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

// hasBody reports whether the operation may read a body.
func (o operation) hasBody() bool { return o.Body != "" || o.Idempotent || o.Method == http.MethodPost }
