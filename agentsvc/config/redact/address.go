package redact

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"stoa/agentsvc/config/document"
)

// origin returns where an address leads: scheme, host and port, in lower case and without the scheme's default port, and
// before them the variable whose default it is.
func origin(a document.Address) string {
	scheme, host := strings.ToLower(a.Scheme), strings.ToLower(a.Host)
	switch scheme {
	case "https://":
		host = strings.TrimSuffix(host, ":443")
	case "http://":
		host = strings.TrimSuffix(host, ":80")
	}
	return a.Variable + scheme + host
}

// maskAddress returns the address with its secrets masked: name and password before the host, and values of the query
// that are or look like credentials.
func maskAddress(a document.Address) document.Address {
	if a.User != "" && !publicUserForm.MatchString(a.User) {
		a.User = document.Mask
	}
	a.Query = slices.Clone(a.Query)
	for i, pair := range a.Query {
		name, value, _ := strings.Cut(pair, "=")
		if isCredential(name, value) || hasCredential(value) {
			a.Query[i] = name + "=" + document.Mask
		}
	}
	return a
}

// hasCredential reports whether the value of a query parameter contains a credential after a semicolon, which older servers
// take for a separator of parameters.
func hasCredential(value string) bool {
	return slices.ContainsFunc(strings.Split(value, ";")[1:], func(pair string) bool {
		name, value, _ := strings.Cut(pair, "=")
		return isCredential(name, value)
	})
}

// restoreAddress returns the address with its masked parts taken from old. The caller has checked that both have the
// same origin; otherwise a secret could be sent to another server. A parameter that occurs several times is restored
// in its order.
func restoreAddress(a, old document.Address) document.Address {
	if a.User == document.Mask && old.User != "" {
		a.User = old.User
	}
	a.Query = slices.Clone(a.Query)
	from := old.Query
	for i, pair := range a.Query {
		name, value, _ := strings.Cut(pair, "=")
		if value != document.Mask {
			continue
		}
		if at := slices.IndexFunc(from, func(p string) bool { return strings.HasPrefix(p, name+"=") }); at >= 0 {
			a.Query[i], from = from[at], from[at+1:]
		}
	}
	return a
}

// publicUserForm matches a user part that consists of variables only and so shows no secret.
var publicUserForm = regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]*:?\}(:\$\{[A-Za-z_][A-Za-z0-9_]*:?\})?$`)

// credentialParts are substrings of names of query parameters that contain credentials, credentialNames are complete
// names. Both are compared in lower case without separators.
var (
	credentialParts = []string{"token", "secret", "passw", "pwd", "apikey", "accesskey", "signature", "credential", "authorization", "session"}
	credentialNames = []string{"key", "sig", "auth", "code", "sas", "hmac"}
)

// minTokenLength is the length, in bytes, from which a value of letters and digits without spaces is taken for a
// token.
const minTokenLength = 20

// isCredential reports whether a query parameter is a credential by its name, or looks like one by its value. It
// prefers masking too much: a masked value is restored when the document comes back.
func isCredential(name, value string) bool {
	if value == "" || publicReferenceForm.MatchString(value) {
		return false
	}
	if plain, err := url.QueryUnescape(name); err == nil {
		name = plain
	}
	name = strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(name))
	if slices.Contains(credentialNames, name) || slices.ContainsFunc(credentialParts, func(part string) bool { return strings.Contains(name, part) }) {
		return true
	}
	return len(value) >= minTokenLength && strings.ContainsAny(value, "0123456789") && tokenForm.MatchString(value)
}

// tokenForm matches the characters of tokens, with at least one letter.
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9_.~+=%-]*[A-Za-z][A-Za-z0-9_.~+=%-]*$`)
