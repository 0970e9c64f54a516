package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"stoa/agentsvc/config/document"
	"stoa/agentsvc/pattern"
)

// checkAddress reports a text at s that is neither empty nor an http or https URL.
func (val *validation) checkAddress(s document.Location, address string) {
	u, err := url.Parse(address)
	if address != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		val.addProblem(s, "must be an http or https address, such as https://example.com/")
	}
}

// maxNameBytes bounds names, in bytes. Names are columns of usage rows, labels of metrics and attributes of spans.
const maxNameBytes = 256

// checkName reports a name that is too long or not printable. s is the location of the name or of what it names.
func (val *validation) checkName(s document.Location, name string) {
	if len(name) > maxNameBytes || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		val.addProblem(s, fmt.Sprintf("must have a name of at most %d printable bytes", maxNameBytes))
	}
}

// checkHeaders checks that the mapping at s contains names and values of HTTP headers (RFC 9110, 5.1 and 5.5). A line
// break in a value would let its author add headers.
func (val *validation) checkHeaders(s document.Location, headers map[string]string) {
	for name, value := range headers {
		if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r) }) {
			val.addProblem(s.Child(name), "is no name of a header")
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == '\x7f' }) {
			val.addProblem(s.Child(name), "holds a control character, such as a line break")
		}
	}
}

// checkSchema reports whether the value at s is absent or a JSON Schema (draft 2020-12 unless it names another) that
// refers to no other document; otherwise it adds a problem.
func (val *validation) checkSchema(s document.Location, schema map[string]any) bool {
	if schema == nil {
		return true
	}
	if !val.addSchema(s, schema) {
		return false
	}
	text, err := json.Marshal(schema)
	if err == nil {
		var doc any
		if doc, err = jsonschema.UnmarshalJSON(bytes.NewReader(text)); err == nil {
			const here = "stoa://schema"
			compiler := jsonschema.NewCompiler()
			compiler.UseLoader(noLoader{})
			compiler.UseRegexpEngine(newExpressionEngine())
			_ = compiler.AddResource(here, doc)
			_, err = compiler.Compile(here)
		}
	}
	var refused *jsonschema.SchemaValidationError
	var invalid *jsonschema.ValidationError
	switch {
	case err == nil:
	case errors.As(err, &refused) && errors.As(refused.Err, &invalid):
		leaf := deepestError(invalid)
		val.addProblem(s.Descend(leaf.InstanceLocation), "is no JSON Schema: "+shortenText(leaf.BasicOutput().Error.String()))
	default:
		val.addProblem(s, "is no JSON Schema: "+shortenText(err.Error()))
	}
	return err == nil
}

// newExpressionEngine returns a function that compiles the expressions of one schema, each once. It refuses an expression
// beyond the bounds of package pattern: one of 1 KB could take 100 MB.
func newExpressionEngine() jsonschema.RegexpEngine {
	compiled := map[string]*regexp.Regexp{}
	return func(expr string) (jsonschema.Regexp, error) {
		if re := compiled[expr]; re != nil {
			return re, nil
		}
		if _, err := pattern.CountInstructions(expr); err != nil {
			return nil, err
		}
		re, err := regexp.Compile(expr)
		if err != nil {
			return nil, err
		}
		compiled[expr] = re
		return re, nil
	}
}

// deepestError returns the cause of e whose location in the value is deepest, the first of several: the most specific
// message.
func deepestError(e *jsonschema.ValidationError) *jsonschema.ValidationError {
	var found *jsonschema.ValidationError
	for _, cause := range e.Causes {
		if child := deepestError(cause); found == nil || len(child.InstanceLocation) > len(found.InstanceLocation) {
			found = child
		}
	}
	return cmp.Or(found, e)
}

// noLoader refuses to load other documents. A tenant's schema could otherwise make the server read files or URLs.
type noLoader struct{}

// Load implements [jsonschema.URLLoader].
func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is another document, which is not loaded", url)
}
