package document

import (
	"regexp"
	"slices"
	"strings"
)

// Mask replaces a secret in a document that is shown. [Read] refuses it in a document whose variables it replaces: a
// secret that could not be restored.
const Mask = "********"

// Address is a URL of a document in its parts. It is parsed as text and not by net/url, because it may contain
// ${NAME}, and because the parts that are not masked must be written back unchanged.
type Address struct {
	// Variable is the beginning of a reference to a variable, such as ${NAME:, whose default is the address; "" = none.
	Variable string
	Scheme   string // with ://
	User     string // name and password, without @; "" = none
	Host     string // with the port
	Path     string
	Query    []string // name=value
	Fragment string   // with #
	HasQuery bool     // there is a question mark, also with an empty query
}

// addressForm matches a text that is a URL as a whole.
var addressForm = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*://)([^/?#\s]*)([^?#\s]*)(\?[^#\s]*)?(#\S*)?$`)

// variableForm matches a reference to a variable with a default that looks like a URL, as a whole.
var variableForm = regexp.MustCompile(`^(\$\{[A-Za-z_][A-Za-z0-9_]*:)([A-Za-z][A-Za-z0-9+.-]*://[^{}]*)\}$`)

// ParseAddress splits a URL, or a variable whose default is a URL, into its parts. It reports false for text that is neither
// as a whole.
func ParseAddress(text string) (a Address, ok bool) {
	if m := variableForm.FindStringSubmatch(text); m != nil {
		a, ok = ParseAddress(m[2])
		a.Variable = m[1]
		return a, ok
	}
	m := addressForm.FindStringSubmatch(text)
	if m == nil {
		return a, false
	}
	a.Scheme, a.Host, a.Path, a.Fragment = m[1], m[2], m[3], m[5]
	if i := strings.LastIndexByte(a.Host, '@'); i >= 0 {
		a.User, a.Host = a.Host[:i], a.Host[i+1:]
	}
	if m[4] != "" {
		a.HasQuery, a.Query = true, strings.Split(m[4][1:], "&")
	}
	return a, true
}

// String returns the address as it was written.
func (a Address) String() string {
	text := a.Variable + a.Scheme
	if a.User != "" {
		text += a.User + "@"
	}
	text += a.Host + a.Path
	if a.HasQuery {
		text += "?" + strings.Join(a.Query, "&")
	}
	text += a.Fragment
	if a.Variable != "" {
		text += "}"
	}
	return text
}

// HasMask reports whether a part of the address is masked.
func (a Address) HasMask() bool {
	return a.User == Mask || slices.ContainsFunc(a.Query, func(pair string) bool { return strings.HasSuffix(pair, "="+Mask) })
}
