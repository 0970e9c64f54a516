package openapi

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"

	"stoa/agentsvc/surface"
)

// defaultError is the schema of errors without another one, and of those of the server.
const defaultError = "ApiError"

// openAIError is the schema of the errors of OpenAI's API. A task that failed or did not end in time is answered with a header
// that keeps the official clients from repeating the request.
const openAIError = "OpenAIError"

// limitHeaders are set by operations that limits count, see docs/limits.md.
var limitHeaders = []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}

// newResponses returns the responses of an operation: what it answers, and the errors that follow from its route and
// its description.
func (b builder) newResponses(o operation) jsonObject {
	status := cmp.Or(o.Status, http.StatusOK)
	out := jsonObject{}
	for _, s := range o.errorStatuses() {
		schema := cmp.Or(o.Error, defaultError)
		if o.Refused != "" && (s == http.StatusBadRequest || s == http.StatusNotFound) {
			schema = o.Refused
		}
		out[strconv.Itoa(s)] = b.errorRef(s, schema, o.errorMediaType())
	}
	out["default"] = b.errorRef(0, cmp.Or(o.Error, defaultError), o.errorMediaType())
	answer := jsonObject{"description": http.StatusText(status), "headers": b.headerRefs(o.answerHeaders())}
	if content := o.answerContent(); len(content) > 0 {
		answer["content"] = content
	}
	out[strconv.Itoa(status)] = answer
	for other, name := range o.Also {
		schema := schemaRef(name)
		// These statuses are also used for errors of the server.
		if other >= http.StatusInternalServerError {
			schema = jsonObject{"anyOf": []any{schema, schemaRef(defaultError)}}
		}
		out[strconv.Itoa(other)] = jsonObject{
			"description": http.StatusText(other), "headers": b.headerRefs(o.alsoHeaders()), "content": jsonObject{o.mediaType(): jsonObject{"schema": schema}},
		}
	}
	if o.Empty != 0 {
		out[strconv.Itoa(o.Empty)] = jsonObject{"description": http.StatusText(o.Empty) + ": to a request without an id", "headers": b.headerRefs(o.answerHeaders())}
	}
	if slices.Contains(o.Headers, "If-None-Match") {
		out[strconv.Itoa(http.StatusNotModified)] = jsonObject{"description": http.StatusText(http.StatusNotModified), "headers": b.headerRefs(o.answerHeaders())}
	}
	return out
}

// answerContent returns the media types of a response that is no error, with their schemas.
func (o operation) answerContent() jsonObject {
	content := jsonObject{}
	if o.Answer != "" {
		content[o.mediaType()] = jsonObject{"schema": schemaRef(o.Answer)}
	}
	for _, kind := range o.Kinds {
		schema := mediaTypeSchema(kind)
		if kind == "text/event-stream" {
			// OpenAPI 3.1 cannot express the parts of a stream, and generators make the type of its events of this.
			schema = schemaRef(o.Event)
		}
		content[kind] = jsonObject{"schema": schema}
	}
	return content
}

// answerHeaders returns the headers of responses that are no errors.
func (o operation) answerHeaders() []string {
	all := append([]string{"X-Request-Id"}, o.AnswerHeaders...)
	if slices.Contains(o.Headers, "If-None-Match") {
		all = append(all, "ETag")
	}
	if o.Idempotent {
		all = append(all, "Idempotent-Replayed")
	}
	// A token is stored nowhere, so that no address shows it.
	if o.Status == http.StatusCreated && o.Answer != "TokenAnswer" {
		all = append(all, "Location")
	}
	if o.LargeBody || o.Signed { // messages to agents
		all = append(all, limitHeaders...)
	}
	return all
}

// alsoHeaders returns the headers of the responses of Also. A dry run of what would be created has nothing that they
// could name.
func (o operation) alsoHeaders() []string {
	if !slices.Contains(o.Query, "dry_run") {
		return o.answerHeaders()
	}
	return slices.DeleteFunc(o.answerHeaders(), func(name string) bool { return name == "ETag" || name == "Location" })
}

// errorStatuses returns the statuses of the operation's errors.
func (o operation) errorStatuses() []int {
	all := append(slices.Clone(o.Errors), http.StatusBadRequest, http.StatusRequestHeaderFieldsTooLarge, http.StatusInternalServerError, http.StatusServiceUnavailable)
	if o.Kind != surface.Open {
		// Not found is also the answer for another app's host or path.
		all = append(all, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests)
	}
	if o.honoursKey() {
		all = append(all, http.StatusConflict, http.StatusUnprocessableEntity)
	}
	// A state that forbids the change is answered like a condition that does not hold.
	if slices.Contains(o.Headers, "If-Match") || o.Kind == surface.Admin && o.Idempotent {
		all = append(all, http.StatusPreconditionFailed)
	}
	if o.hasBody() {
		all = append(all, http.StatusRequestEntityTooLarge)
	}
	return all
}

// errorRef returns a reference to the response for errors with that status, 0 = all others, and adds the response to
// the components.
func (b builder) errorRef(status int, schema, mediaType string) jsonObject {
	name, description, headers := schema, "Any other error", []string{"X-Request-Id"}
	if status != 0 {
		name, description = schema+strconv.Itoa(status), http.StatusText(status)
	}
	if schema == openAIError && (status == http.StatusUnprocessableEntity || status == http.StatusGatewayTimeout) { // those of tasks
		headers = append(headers, "X-Should-Retry")
	}
	switch status {
	case http.StatusUnauthorized:
		headers = append(headers, "WWW-Authenticate")
	case http.StatusMethodNotAllowed:
		headers = append(headers, "Allow")
	case http.StatusTooManyRequests:
		headers = append(append(headers, "Retry-After"), limitHeaders...)
	case 0, http.StatusServiceUnavailable:
		headers = append(headers, "Retry-After")
	}
	body := jsonObject{"schema": schemaRef(schema)}
	// Every protocol has a form for clients that accept application/json only.
	b.responses[name] = jsonObject{"description": description, "headers": b.headerRefs(headers), "content": jsonObject{mediaType: body, "application/json": body}}
	return jsonObject{"$ref": "#/components/responses/" + name}
}

// headerRefs returns references to response headers and adds the headers to the components.
func (b builder) headerRefs(names []string) jsonObject {
	out := jsonObject{}
	for _, name := range names {
		b.headers[name] = jsonObject{"schema": b.parameterSchema(name), "description": b.Parameters[name]}
		out[name] = jsonObject{"$ref": "#/components/headers/" + name}
	}
	return out
}
