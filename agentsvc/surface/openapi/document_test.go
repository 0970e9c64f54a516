package openapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// document is the OpenAPI document as a client reads it.
type document struct {
	operations []*operation // of two that match the same path, the one with more fixed text comes first
	responses  map[string]response
	schemas    map[string]*jsonschema.Schema
	calls      map[string][]documentedCall
	checked    map[string]int // bodies that were validated, by schema; results also by method of JSON-RPC
}

// operation is an Operation Object and what it is found by.
type operation struct {
	method, pattern string
	path            *regexp.Regexp
	Parameters      []struct {
		Name, In string
		Required bool
		Schema   parameterSchema
	}
	RequestBody struct {
		Required bool
		Content  content
	}
	Responses map[string]response
	Security  []map[string][]string
}

// parameterSchema is the schema of a parameter.
type parameterSchema struct {
	Enum             []string
	Format           string
	Minimum, Maximum int
}

// documentedCall is a method of a JSON-RPC endpoint as descriptions.json has it.
type documentedCall struct {
	Methods        []string
	Params, Result string
	Optional       bool
}

// readCalls returns the methods of JSON-RPC endpoints, by the schema of their requests.
func readCalls(t *testing.T) map[string][]documentedCall {
	t.Helper()
	raw, err := os.ReadFile("descriptions.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct{ Calls map[string][]documentedCall }
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	return d.Calls
}

// response is a Response Object, or a reference to one.
type response struct {
	Ref     string `json:"$ref"`
	Headers map[string]any
	Content content
}

// content has a schema for each media type.
type content map[string]struct {
	Schema struct {
		Ref string `json:"$ref"`
	}
}

// newDocument returns the document doc, whose schemas the test may have changed.
func newDocument(t *testing.T, doc map[string]any) *document {
	t.Helper()
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	var decoded struct {
		Paths      map[string]map[string]*operation
		Components struct{ Responses map[string]response }
	}
	if err := json.Unmarshal(raw, &decoded); err != nil {
		t.Fatal(err)
	}
	d := &document{responses: decoded.Components.Responses, schemas: compileSchemas(t, doc), calls: readCalls(t), checked: map[string]int{}}
	fixed := func(pattern string) int { return len(pathVariable.ReplaceAllString(pattern, "")) }
	for _, pattern := range slices.SortedFunc(maps.Keys(decoded.Paths), func(x, y string) int { return fixed(y) - fixed(x) }) {
		for method, op := range decoded.Paths[pattern] {
			op.method, op.pattern = strings.ToUpper(method), pattern
			op.path = regexp.MustCompile("^" + quotedVariable.ReplaceAllString(regexp.QuoteMeta(pattern), `[^/:]+`) + "$")
			d.operations = append(d.operations, op)
		}
	}
	return d
}

var (
	requestLine    = regexp.MustCompile(`^(GET|POST|PUT|PATCH|DELETE) (\S+)`)
	placeholder    = regexp.MustCompile(`\{\{[^}]*\}\}`)
	appPrefix      = regexp.MustCompile(`^/apps/[^/]+(/.+)`) // below it there is nothing of the operator's
	pathVariable   = regexp.MustCompile(`\{\w+\}`)
	quotedVariable = regexp.MustCompile(`\\\{\w+\\\}`)
	rpcFailure     = regexp.MustCompile(`"error":\s*\{\s*"code":|"isError": true`)
	otherSpelling  = regexp.MustCompile(`"kind": "text"|"params": \{"task_id"|"TASK_STATE_`) // of the extension API, see docs/api/extension.md
	inexactNumber  = regexp.MustCompile(`: (SECONDS|UNIX)\b`)
)

// findOperation returns the operation of a request, nil if the document has none.
func (d *document) findOperation(requestText string) *operation {
	m := requestLine.FindStringSubmatch(requestText)
	if m == nil {
		return nil
	}
	path, _, _ := strings.Cut(placeholder.ReplaceAllString(m[2], "x"), "?")
	if m := appPrefix.FindStringSubmatch(path); len(m) == 2 && !strings.HasPrefix(m[1], "/admin") {
		path = m[1]
	}
	for _, op := range d.operations {
		if op.method == m[1] && op.path.MatchString(path) {
			return op
		}
	}
	return nil
}

// checkDialogue compares a request and its answer, as dialogues record them, with the document. Where the answer is no
// error, the body of the request is validated as well, and the result of JSON-RPC as that of its method.
func (d *document) checkDialogue(requestText, answer string) error {
	op := d.findOperation(requestText)
	if op == nil || requestLine.FindStringSubmatch(answer) != nil {
		return nil
	}
	head, answerBody, _ := strings.Cut(answer, "\n\n")
	line, fields, _ := strings.Cut(head, "\n")
	status, err := strconv.Atoi(line[:min(len(line), 3)])
	if err != nil {
		return nil // of a protocol other than HTTP
	}
	header := http.Header{}
	for field := range strings.Lines(fields) {
		name, value, _ := strings.Cut(strings.TrimSpace(field), ": ")
		header.Add(name, value)
	}
	if err := d.checkAnswer(op, status, header, answerBody); err != nil {
		return err
	}
	head, body, _ := strings.Cut(requestText, "\n\n")
	name := op.RequestBody.Content.schemaName("application/json")
	if status >= http.StatusMultipleChoices || d.calls[name] != nil && (answerBody == "" || rpcFailure.MatchString(answerBody)) || strings.TrimSpace(body) == "" || strings.Contains(head, "Content-Type: ") && !strings.Contains(head, "json") {
		return nil
	}
	if name != "AgentCall" || !otherSpelling.MatchString(body) {
		if err := d.validate(name, body); err != nil {
			return err
		}
	}
	return d.checkResults(name, body, answerBody)
}

// checkResults validates the results of a response of JSON-RPC, or of those in a stream, as those of the method that the
// request names.
func (d *document) checkResults(endpoint, requestBody, answer string) error {
	var request struct{ Method string }
	_ = json.Unmarshal([]byte(requestBody), &request)
	i := slices.IndexFunc(d.calls[endpoint], func(c documentedCall) bool { return slices.Contains(c.Methods, request.Method) })
	if i < 0 {
		return nil
	}
	responses := []string{answer}
	if strings.Contains(answer, "data: ") {
		responses = strings.Split(answer, "data: ")
	}
	for _, data := range responses {
		data, _, _ = strings.Cut(data, "\n\n")
		var response struct{ Result json.RawMessage }
		if json.Unmarshal([]byte(inexactNumber.ReplaceAllString(data, ": 1")), &response) != nil || response.Result == nil {
			continue
		}
		if err := d.validate(d.calls[endpoint][i].Result, string(response.Result)); err != nil {
			return fmt.Errorf("the result of %s: %w", request.Method, err)
		}
		d.checked[request.Method]++
	}
	return nil
}

// undocumentedHeaders are those of HTTP and WebSocket themselves, of proxies, of cross-origin requests, and of pages.
var undocumentedHeaders = regexp.MustCompile(`^(Content-(Type|Length|Security-Policy)|Date|Vary|Cache-Control|Connection|Upgrade|Sec-Websocket-.*|X-Accel-Buffering|X-Content-Type-Options|Access-Control-.*)$`)

// checkAnswer returns an error for an answer that is not documented.
func (d *document) checkAnswer(op *operation, status int, header http.Header, body string) error {
	r, ok := op.Responses[strconv.Itoa(status)]
	if !ok {
		return fmt.Errorf("%s %s answers %d, and documents %q", op.method, op.pattern, status, slices.Sorted(maps.Keys(op.Responses)))
	}
	if r.Ref != "" {
		r = d.responses[strings.TrimPrefix(r.Ref, "#/components/responses/")]
	}
	documented := map[string]bool{}
	for name := range r.Headers {
		documented[http.CanonicalHeaderKey(name)] = true
	}
	for name := range header {
		if !documented[http.CanonicalHeaderKey(name)] && !undocumentedHeaders.MatchString(name) {
			return fmt.Errorf("%s %s answers %d with the header %s, which is not documented", op.method, op.pattern, status, name)
		}
	}
	if body == "" || status == http.StatusSwitchingProtocols {
		return nil
	}
	mediaType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if _, ok := r.Content[mediaType]; !ok || err != nil {
		return fmt.Errorf("%s %s answers %d as %q, and documents %q", op.method, op.pattern, status, mediaType, slices.Sorted(maps.Keys(r.Content)))
	}
	if mediaType == "text/event-stream" {
		return d.checkEvents(r.Content.schemaName(mediaType), body)
	}
	if !strings.HasSuffix(mediaType, "json") || mediaType == "application/x-ndjson" {
		return nil
	}
	return d.validate(r.Content.schemaName(mediaType), body)
}

// checkEvents validates the data of server-sent events by the schema of the stream. The last line of OpenAI's streams is
// no JSON.
func (d *document) checkEvents(name, body string) error {
	if d.schemas[name] == nil {
		return fmt.Errorf("a stream has the schema %q, which does not exist", name)
	}
	for line := range strings.Lines(body) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		if err := d.validate(name, data); err != nil {
			return err
		}
	}
	return nil
}

// schemaName returns the name of the schema of a media type, "" if it is none of the components.
func (c content) schemaName(mediaType string) string {
	return strings.TrimPrefix(c[mediaType].Schema.Ref, "#/components/schemas/")
}

// validate validates a body, in which dialogues have replaced numbers that vary. "" is any schema.
func (d *document) validate(name, body string) error {
	if name == "" {
		return nil
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(inexactNumber.ReplaceAllString(body, ": 1")))
	if err != nil {
		return fmt.Errorf("%w: %.300s", err, body)
	}
	d.checked[name]++
	if err := d.schemas[name].Validate(v); err != nil {
		return fmt.Errorf("no %s: %w", name, err)
	}
	return nil
}
