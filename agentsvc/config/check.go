package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp/syntax"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"stoa/agentsvc/config/document"
	"stoa/agentsvc/pattern"
	"stoa/tenancy/grant"
)

// validation checks the rules that need more than one value: references, grants, and keys that depend on each other. It
// walks the decoded structs and their YAML nodes together, so that every problem
// has a position. It is used by one call of Parse.
type validation struct {
	Options
	doc               *document.Document
	entryNames        map[string][]string  // sorted names of the entries by top-level key
	databases         map[string]*Database // for refuseMySQL
	llms              map[string]*LLM      // for fallbackPath
	guardrails        map[string]*Guardrail
	nesting           *nesting           // which agents are below which
	webhooks          map[string]string  // agent by webhook path
	authEnabled       bool               // server.auth is on
	anonymous         bool               // callers of the default app need no credential
	metricsPath       string             // of the main listener; "" = none
	defaultLLMMissing bool               // an agent without llm has no model
	warnings          []document.Problem // become those of the Config
	compiled          pattern.SchemaCost // of all expressions and JSON Schemas, for checkCompiled
}

// ruleChecker is implemented by the structs of the document whose rules go beyond tags. checkRules adds problems to
// the validation; the location is that of the struct.
type ruleChecker interface {
	checkRules(*validation, document.Location)
}

// walkValue checks v, which was decoded from s, and everything below it, except for what is turned off.
func (val *validation) walkValue(s document.Location, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			val.walkValue(s, v.Elem())
		}
	case reflect.Struct:
		if s.Value != nil && s.Value.Kind != yaml.MappingNode && !document.IsNull(s.Value) {
			return // decode has reported the wrong kind
		}
		off := val.doc.IsOff(s.Value)
		if x, ok := v.Addr().Interface().(ruleChecker); ok && !off {
			x.checkRules(val, s)
		}
		for _, f := range document.FieldsOf(v.Type()) {
			if !off || f.ActsAlways {
				val.checkField(s.Child(f.Name), v, &f)
			}
		}
	case reflect.Map:
		if v.Type().Elem().Kind() != reflect.Pointer {
			return
		}
		for i, name := range s.Keys() {
			at := s.Entry(i)
			item := v.MapIndex(reflect.ValueOf(name))
			if !item.IsValid() {
				continue // decode has reported it
			}
			val.checkName(at, name)
			val.walkValue(at, item)
		}
	case reflect.Slice:
		for i := range v.Len() {
			val.walkValue(s.Item(i), v.Index(i))
		}
	}
}

// checkField checks the rules in the tags of field f of struct v, and everything below the field. The tags only apply
// if the key is in the document: a default needs no grant. A key that does not belong to its type may have its default.
func (val *validation) checkField(s document.Location, v reflect.Value, f *document.Field) {
	x := v.Field(f.Index)
	written := s.Value != nil && !document.IsNull(s.Value)
	if written {
		if !f.IsAllowed(v) && !isDisabled(x) && !isDefault(x, v, f) {
			val.addProblem(s, fmt.Sprintf("belongs to %s %s only", f.OnlyKey, strings.Join(f.OnlyValues, ", ")))
		}
		if f.Grant != "" {
			val.requireGrant(s, f.Grant)
			val.requireGrantedPath(s, f.Grant, x.String())
		}
		if f.Ref != "" {
			val.checkReferences(s, x, f.Ref)
		}
	}
	val.walkValue(s, x)
}

// isDefault reports whether x, field f of the struct v, is text, a number or a boolean and has its default.
func isDefault(x, v reflect.Value, f *document.Field) bool {
	switch x.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Struct:
		return false
	}
	return x.Equal(document.NewDefault(v.Type()).Elem().Field(f.Index))
}

// isDisabled reports whether v is a struct with a field Enabled that is false.
func isDisabled(v reflect.Value) bool {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return false
	}
	enabled := v.FieldByName("Enabled")
	return enabled.IsValid() && !enabled.Bool()
}

// checkReferences checks that the name, or each name of the list, v is an entry of the top-level key kind. A list has
// no name twice.
func (val *validation) checkReferences(s document.Location, v reflect.Value, kind string) {
	if v.Kind() == reflect.String {
		val.checkReference(s, kind, v.String(), val.entryNames[kind])
		return
	}
	seen := map[string]bool{}
	for i := range v.Len() {
		name := v.Index(i).String()
		if seen[name] && name != "" {
			val.addProblem(s.Item(i), "is listed twice")
			continue
		}
		seen[name] = true
		val.checkReference(s.Item(i), kind, name, val.entryNames[kind])
	}
}

// checkReference checks that name is one of known, which must be sorted. kind describes known in the message. A name
// from a variable is not shown.
func (val *validation) checkReference(s document.Location, kind, name string, known []string) {
	if _, found := slices.BinarySearch(known, name); found || name == "" {
		return
	}
	if val.doc.IsFromVariable(s.Value) {
		val.addProblem(s, "names none of "+kind)
		return
	}
	val.doc.AddSuggestion(s, fmt.Sprintf("names none of %s: there is no %q", kind, shortenText(name)), name, known)
}

// refuseMySQL refuses a mysql database where it is not a source of documents: Stoa cannot store in it.
func (val *validation) refuseMySQL(s document.Location, name string) {
	if db := val.databases[name]; db != nil && db.Driver == "mysql" {
		val.addProblem(s, "is a mysql database, which can only be a source of documents")
	}
}

// isEmptyText reports whether the key at s has the empty text as its value. It is not a missing key: it gets no default.
func isEmptyText(s document.Location) bool {
	return s.Value != nil && s.Value.Kind == yaml.ScalarNode && s.Value.Value == "" && !document.IsNull(s.Value)
}

// requireKeys reports each key that the mapping at s does not have or has with an empty text.
func (val *validation) requireKeys(s document.Location, keys ...string) {
	for _, key := range keys {
		val.doc.RequireValue(s, key)
	}
}

// requireOneOf reports a mapping at s that does not have exactly one of keys. It may have none if it has one of
// alternatives.
func (val *validation) requireOneOf(s document.Location, keys []string, alternatives ...string) {
	found := presentKeys(s, keys)
	switch {
	case len(found) > 1:
		val.addProblem(s, "holds both "+strings.Join(found, " and ")+"; one of them is allowed")
	case len(found) == 0 && len(presentKeys(s, alternatives)) == 0:
		val.addProblem(s, "needs one of "+strings.Join(keys, ", "))
	}
}

// presentKeys returns those of keys that the mapping at s has.
func presentKeys(s document.Location, keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return s.Child(key).Value == nil })
}

// checkPatterns checks that every item of the list at s is a regular expression, and that their total size is
// bounded.
func (val *validation) checkPatterns(s document.Location, list []string) {
	total := 0
	for i, text := range list {
		total += val.checkPattern(s.Item(i), text)
	}
	val.checkPatternTotal(s, total)
}

// checkPatternTotal checks the total size of a list of regular expressions, in instructions of the compiled programs.
// Every message is matched with all of them.
func (val *validation) checkPatternTotal(s document.Location, instructions int) {
	if instructions > pattern.MaxTotalInstructions {
		val.addProblem(s, "its regular expressions "+pattern.TotalSizeError(instructions).Error())
	}
}

// Bounds of what the expressions and JSON Schemas of one document compile to. Each list, script and schema has a bound of
// its own, but thousands of them take gigabytes: 660 KB with 9,000 guardrails of 1,000 instructions took 700 MiB. Within
// these bounds a document takes some 25 MiB.
const (
	maxInstructions = 100_000
	maxSchemaParts  = 20_000
)

// checkCompiled reports expressions or schemas that are too large together, and whether there are none.
func (val *validation) checkCompiled(root document.Location) bool {
	if n := val.compiled.Instructions; n > maxInstructions {
		val.addProblem(root, fmt.Sprintf("all regular expressions of the document compile to %d instructions together, and may to %d: leave some out", n, maxInstructions))
	}
	if n := val.compiled.Parts; n > maxSchemaParts {
		val.addProblem(root, fmt.Sprintf("all JSON Schemas of the document have %d objects and booleans together, and may have %d: leave some out", n, maxSchemaParts))
	}
	return val.compiled.Instructions <= maxInstructions && val.compiled.Parts <= maxSchemaParts
}

// addSchema adds the cost of the JSON Schema at s to that of the document. It reports whether the schema may be compiled;
// if it is too large, it reports that, and of a document that is checkCompiled does.
func (val *validation) addSchema(s document.Location, schema map[string]any) bool {
	cost := pattern.MeasureSchema(schema)
	val.compiled.Parts += cost.Parts
	val.compiled.Instructions += cost.Instructions
	if cost.Parts > pattern.MaxSchemaParts {
		val.addProblem(s, fmt.Sprintf("is too large: %d objects and booleans, and may have %d", cost.Parts, pattern.MaxSchemaParts))
		return false
	}
	return val.compiled.Instructions <= maxInstructions && val.compiled.Parts <= maxSchemaParts
}

// checkPattern checks that the text at s is a regular expression of bounded size. It returns its approximate number
// of instructions, 0 if it has a problem.
func (val *validation) checkPattern(s document.Location, text string) int {
	n, err := pattern.CountInstructions(text)
	val.compiled.Instructions += n
	var unreadable *syntax.Error
	switch {
	case err == nil:
		return n
	case !errors.As(err, &unreadable):
		val.addProblem(s, err.Error())
	case val.doc.IsFromVariable(s.Value):
		val.addProblem(s, "is not a regular expression (RE2)")
	default:
		val.addProblem(s, "is not a regular expression (RE2): "+shortenText(unreadable.Error()))
	}
	return 0
}

// isGranted reports whether the app has a grant for power.
func (val *validation) isGranted(power string) bool {
	return val.Grants.Has(power)
}

// requireGrant refuses the value at s if the document is a tenant's and the app was not granted power.
func (val *validation) requireGrant(s document.Location, power string) {
	switch {
	case !val.Tenant || val.isGranted(power):
	case val.Grants.IsRootless(power):
		val.addProblem(s, fmt.Sprintf(`is a power over the host: the operator has granted %[1]s without naming folders, which gives nothing; let the grant name them: {"%[1]s": ["/srv/acme"]}, on the command line --grant %[1]s=/srv/acme`, power))
	default:
		val.addProblem(s, "is a power over the host: the operator has not granted "+power)
	}
}

// requireGrantedPath refuses a tenant's path that is not absolute or not below a folder of the grant. Symbolic links
// are not resolved here: grant.Guard does so when the path is used.
func (val *validation) requireGrantedPath(s document.Location, power, path string) {
	if !val.Tenant || !val.isGranted(power) || path == "" {
		return
	}
	if !filepath.IsAbs(path) {
		val.addProblem(s, "must be an absolute path: an app names the folder of the host that it was given")
		return
	}
	for _, root := range val.Grants.Roots(power) {
		if _, ok := grant.RelBelow(root, path); ok {
			return
		}
	}
	val.addProblem(s, fmt.Sprintf("lies below none of the folders that the operator has granted by %s: %s", power, strings.Join(val.Grants.Roots(power), ", ")))
}

// checkAgents warns of an app's document without agents: it may be a first step, and answers no message. The operator's file
// often has none.
func (val *validation) checkAgents(root document.Location, agents map[string]*Agent) {
	if val.Tenant && len(agents) == 0 {
		val.addWarning(root.Child("agents"), "the app has no agents, so it answers no message: add one")
	}
}

// addWarning adds a warning at s.
func (val *validation) addWarning(s document.Location, message string) {
	val.warnings = append(val.warnings, s.NewProblem(message))
}

// addProblem adds a problem at s.
func (val *validation) addProblem(s document.Location, message string) {
	val.doc.AddProblem(s, message)
}

// shortenText returns text, cut to a length that fits in a message.
func shortenText(text string) string {
	const longest = 120
	if len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "..."
	}
	return text
}
