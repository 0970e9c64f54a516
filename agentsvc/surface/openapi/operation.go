package openapi

import (
	"cmp"
	"fmt"
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

// pathParameter matches a parameter of a route's pattern.
var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// newOperation returns the Operation Object of an operation. Aliases are in its description and not paths of their own:
// generated clients would have each operation several times.
func (b builder) newOperation(o operation) jsonObject {
	op := jsonObject{"operationId": o.ID, "summary": o.Summary, "tags": []string{o.Tag}, "responses": b.newResponses(o), "security": newSecurity(o.Route, b.requiredScopes(o))}
	if text := newDescription(o.Route, b.requiredScopes(o)); text != "" {
		op["description"] = text
	}
	var params []any
	for _, m := range pathParameter.FindAllStringSubmatch(o.Pattern, -1) {
		params = append(params, b.newParameter(o, "path", m[1]))
	}
	for _, name := range o.Query {
		if !b.isAlias(o, name) {
			params = append(params, b.newParameter(o, "query", name))
		}
	}
	for _, name := range o.requestHeaders() {
		params = append(params, b.newParameter(o, "header", name))
	}
	op["parameters"] = params
	if o.Body != "" || len(o.BodyKinds) > 0 {
		content := jsonObject{}
		if o.Body != "" {
			content["application/json"] = jsonObject{"schema": schemaRef(o.Body)}
		}
		for _, kind := range o.BodyKinds {
			content[kind] = jsonObject{"schema": mediaTypeSchema(kind)}
		}
		op["requestBody"] = jsonObject{"content": content, "required": !o.BodyOptional}
	}
	return op
}

// isAlias reports whether a parameter of the query is another name of a documented parameter: of one of the query, or
// of the header of the same name.
func (b builder) isAlias(o operation, name string) bool {
	return slices.Contains(o.Query, b.QueryAliases[name]) || slices.Contains(o.requestHeaders(), name)
}

// aliasOf returns the other name in the query of a parameter, "" = it has none.
func (b builder) aliasOf(o operation, in, name string) string {
	for _, alias := range o.Query {
		if b.isAlias(o, alias) && (in == "query" && b.QueryAliases[alias] == name || in == "header" && alias == name) {
			return alias
		}
	}
	return ""
}

// newDescription returns what the summary of an operation does not say, "" = nothing.
func newDescription(r surface.Route, scopes []string) string {
	var sentences []string
	if len(scopes) > 0 {
		sentences = append(sentences, describeScopes(scopes))
	}
	if len(r.Aliases) > 0 {
		sentences = append(sentences, "Also answers at "+strings.Join(r.Aliases, " and ")+".")
	}
	return strings.Join(sentences, " ")
}

// describeScopes returns the sentence about the scopes of which a caller needs one.
func describeScopes(scopes []string) string {
	return "Needs the scope " + strings.Join(scopes, " or ") + "."
}

// requiredScopes returns the scopes of which a caller of the operation needs one: that of the route, those of the description,
// or those of all methods of a JSON-RPC endpoint. Without any, every caller of the app is let in.
func (b builder) requiredScopes(o operation) []string {
	if o.Scope != "" {
		return []string{string(o.Scope)}
	}
	all := slices.Clone(o.Scopes)
	for _, c := range b.Calls[o.Body] {
		all = append(all, c.Scopes...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// newParameter returns a Parameter Object; in is path, query or header. Path parameters must be marked as required (OpenAPI
// 3.1, Parameter Object).
func (b builder) newParameter(o operation, in, name string) jsonObject {
	p := jsonObject{"name": name, "in": in, "schema": b.parameterSchema(name), "description": cmp.Or(o.Parameters[name], b.Parameters[name])}
	if alias := b.aliasOf(o, in, name); alias != "" {
		p["description"] = fmt.Sprintf("%s; the query may have it as %s", p["description"], alias)
	}
	if own := o.ParameterSchemas[name]; own != nil {
		p["schema"] = own
	}
	if in == "path" || slices.Contains(o.Required, name) {
		p["required"] = true
	}
	return p
}

// parameterSchema returns the schema of a parameter or a header.
func (b builder) parameterSchema(name string) any {
	if schema := b.ParameterSchemas[name]; schema != nil {
		return schema
	}
	return jsonObject{"type": "string"}
}

// newSecurity returns the security requirements of a route: a list of alternatives, where {} means that no
// credential is needed and an empty list that none is accepted. Each of scopes is an alternative; for a scheme that is
// not of OAuth they are the roles of OpenAPI 3.1 (Security Requirement Object). Signed routes verify a signature, which OpenAPI
// cannot describe.
func newSecurity(r surface.Route, scopes []string) []any {
	switch {
	case r.Kind == surface.Admin:
		return []any{jsonObject{"admin": []string{}}}
	case r.Kind == surface.Open, r.Signed:
		return []any{}
	case r.Discovery:
		return []any{jsonObject{}, jsonObject{"bearer": []string{}}}
	}
	if len(scopes) == 0 {
		return []any{jsonObject{"bearer": []string{}}}
	}
	var alternatives []any
	for _, scope := range scopes {
		alternatives = append(alternatives, jsonObject{"bearer": []string{scope}})
	}
	return alternatives
}

// schemaRef returns a reference to a schema of descriptions.json.
func schemaRef(schema string) jsonObject { return jsonObject{"$ref": "#/components/schemas/" + schema} }

var nonAlphanumeric = regexp.MustCompile(`[^A-Za-z0-9]+`)

// defaultID returns a unique ID for a route that has no description, such as get_agents_agent.
func defaultID(r surface.Route) string {
	return strings.Trim(nonAlphanumeric.ReplaceAllString(strings.ToLower(r.Method)+"_"+r.Pattern, "_"), "_")
}

// mediaTypeSchema returns the schema of a body that is no JSON: a form with a file, the bytes of a file, or a text. Clients
// send and get bytes as they are.
func mediaTypeSchema(mediaType string) jsonObject {
	file := jsonObject{"type": "string", "format": "binary"}
	switch mediaType {
	case "multipart/form-data":
		return jsonObject{"type": "object", "properties": jsonObject{"file": file}, "required": []string{"file"}}
	case "application/octet-stream", "application/x-ndjson":
		return file
	}
	return jsonObject{"type": "string"}
}

// hasBody reports whether the operation may read a body.
func (o operation) hasBody() bool { return o.Body != "" || o.Idempotent || o.Method == http.MethodPost }
