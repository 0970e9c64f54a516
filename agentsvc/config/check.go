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

	"stoa/agentsvc/pattern"
	"stoa/tenancy/grant"
)

// checks holds what needs the whole document: references, host powers, siblings, and what is not available
// yet. It walks the decoded structs and their nodes together.
type checks struct {
	Options
	doc               *document
	names             map[string][]string  // sorted names by top-level key
	databases         map[string]*Database // to tell where mysql is refused
	llms              map[string]*LLM      // to tell where fallbacks lead
	guardrails        map[string]*Guardrail
	nesting           *nesting
	webhooks          map[string]string // agents by the paths of their webhooks
	auth              bool              // callers need a credential
	defaultLLMMissing bool
	refused           map[string]bool // entries such as tools.shell that lack a grant
	waiting           []waiting
}

// checker is implemented by the structs that have rules of their own.
type checker interface {
	check(*checks, spot)
}

// walk checks v, which was decoded from s, and everything below. Where off is set, v belongs to something
// that is turned off: it is held to its form, but asks for nothing.
func (c *checks) walk(s spot, v reflect.Value, off bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			c.walk(s, v.Elem(), off)
		}
	case reflect.Struct:
		if s.value != nil && s.value.Kind != yaml.MappingNode && !isNull(s.value) {
			return // told when it was decoded
		}
		if x, ok := v.Addr().Interface().(checker); ok {
			x.check(c, s)
		}
		for _, f := range fieldsOf(v.Type()) {
			c.field(s.child(f.name), v, &f, off)
		}
	case reflect.Map:
		if v.Type().Elem().Kind() != reflect.Pointer {
			return
		}
		for i, name := range keys(s) {
			at := spot{&path{s.path, name, namePart}, s.value.Content[2*i], s.value.Content[2*i+1]}
			item := v.MapIndex(reflect.ValueOf(name))
			if !item.IsValid() {
				continue // told when it was decoded
			}
			c.name(at, name)
			c.walk(at, item, disabled(item))
			if !disabled(item) {
				c.available(at, item, reflect.Value{})
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			c.walk(s.item(i), v.Index(i), off)
		}
	}
}

// field checks the field f of the struct v, and everything below it.
func (c *checks) field(s spot, v reflect.Value, f *field, off bool) {
	x := v.Field(f.index)
	written := s.value != nil && !isNull(s.value)
	if written {
		if !f.allowed(v) {
			c.problem(s, fmt.Sprintf("belongs to %s %s only", f.onlyKey, strings.Join(f.only, ", ")))
		}
		if f.grant != "" && !off {
			c.grant(s, f.grant)
			c.below(s, f.grant, x.String())
		}
		if f.ref != "" {
			c.references(s, x, f.ref)
		}
	}
	c.walk(s, x, off || disabled(x))
	if !off {
		c.available(s, x, v)
	}
}

// disabled reports whether v is a struct that is turned off.
func disabled(v reflect.Value) bool {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return false
	}
	enabled := v.FieldByName("Enabled")
	return enabled.IsValid() && !enabled.Bool()
}

func (c *checks) references(s spot, v reflect.Value, kind string) {
	if v.Kind() == reflect.String {
		c.reference(s, kind, v.String(), c.names[kind])
		return
	}
	seen := map[string]bool{}
	for i := range v.Len() {
		name := v.Index(i).String()
		if seen[name] && name != "" {
			c.problem(s.item(i), "stands twice in the list")
			continue
		}
		seen[name] = true
		c.reference(s.item(i), kind, name, c.names[kind])
	}
}

// reference checks that name is one of known, which is sorted and which kind describes.
func (c *checks) reference(s spot, kind, name string, known []string) {
	if _, found := slices.BinarySearch(known, name); found || name == "" {
		return
	}
	if c.doc.filled[s.value] {
		c.problem(s, "names none of "+kind)
		return
	}
	c.doc.suggest(s, fmt.Sprintf("names none of %s: there is no %q", kind, shorten(name)), name, known)
}

// notMySQL refuses a database that can only be a source of documents.
func (c *checks) notMySQL(s spot, name string) {
	if db := c.databases[name]; db != nil && db.Driver == "mysql" {
		c.problem(s, "is a mysql database, which can only be a source of documents")
	}
}

// needs demands keys in the mapping at s.
func (c *checks) needs(s spot, keys ...string) {
	for _, key := range keys {
		if !c.doc.has(s.value, key) {
			c.problem(s, key+" is needed")
		}
	}
}

// oneOf demands exactly one of keys in the mapping at s, or none where one of alone stands there.
func (c *checks) oneOf(s spot, keys []string, alone ...string) {
	found := present(s.value, keys)
	switch {
	case len(found) > 1:
		c.problem(s, "holds both "+strings.Join(found, " and ")+"; one of them is allowed")
	case len(found) == 0 && len(present(s.value, alone)) == 0:
		c.problem(s, "needs one of "+strings.Join(keys, ", "))
	}
}

func present(n *yaml.Node, keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		_, value := lookup(n, key)
		return value == nil
	})
}

// patterns checks that every item of the list at s is a regular expression, and that they are not too much together.
func (c *checks) patterns(s spot, list []string) {
	total := 0
	for i, text := range list {
		total += c.pattern(s.item(i), text)
	}
	c.total(s, total)
}

// total checks that the expressions of the list at s are not too much together.
func (c *checks) total(s spot, instructions int) {
	if instructions > pattern.MaxTotal {
		c.problem(s, "its regular expressions "+pattern.TooMany(instructions).Error())
	}
}

// pattern checks that the text at s is a regular expression that is not too large. It returns about how many instructions it
// compiles to, 0 if something is wrong with it.
func (c *checks) pattern(s spot, text string) int {
	n, err := pattern.Size(text)
	var unreadable *syntax.Error
	switch {
	case err == nil:
		return n
	case !errors.As(err, &unreadable):
		c.problem(s, err.Error())
	case c.doc.filled[s.value]:
		c.problem(s, "is not a regular expression (RE2)")
	default:
		c.problem(s, "is not a regular expression (RE2): "+shorten(unreadable.Error()))
	}
	return 0
}

func (c *checks) granted(power string) bool {
	return c.Grants.Has(power)
}

// grant refuses what stands at s to an app that was not granted power.
func (c *checks) grant(s spot, power string) {
	switch {
	case !c.Tenant || c.granted(power):
	case c.Grants.IsRootless(power):
		c.refuse(s, fmt.Sprintf(`is a power over the host: the operator has granted %[1]s without naming folders, which gives nothing; let the grant name them: {"%[1]s": ["/srv/acme"]}, on the command line --grant %[1]s=/srv/acme`, power))
	default:
		c.refuse(s, "is a power over the host: the operator has not granted "+power)
	}
}

// below refuses an app a path that does not stand below the folders that a power reaches. Where links lead is seen when the
// path is used.
func (c *checks) below(s spot, power, path string) {
	if !c.Tenant || !c.granted(power) || path == "" {
		return
	}
	if !filepath.IsAbs(path) {
		c.refuse(s, "must be an absolute path: an app names the folder of the host that it was given")
		return
	}
	for _, root := range c.Grants.Roots(power) {
		if _, ok := grant.Below(root, path); ok {
			return
		}
	}
	c.refuse(s, fmt.Sprintf("lies below none of the folders that the operator has granted by %s: %s", power, strings.Join(c.Grants.Roots(power), ", ")))
}

func (c *checks) refuse(s spot, message string) {
	c.refused[s.path.entry()] = true
	c.problem(s, message)
}

func (c *checks) problem(s spot, message string) {
	c.doc.problem(s, message)
}

func shorten(text string) string {
	const longest = 120
	if len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "..."
	}
	return text
}
