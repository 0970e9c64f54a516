package config

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// address is an address of a document in its parts. It is taken apart as text, so that variables may stand in it, and what
// is not hidden stays as it was written.
type address struct {
	scheme   string // with ://
	user     string // without @; "" = none
	host     string // with the port
	path     string
	query    []string // name=value
	fragment string   // the fragment, with #
	hasQuery bool     // a question mark stands before the query
}

var addressForm = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*://)([^/?#\s]*)([^?#\s]*)(\?[^#\s]*)?(#\S*)?$`)

// parseAddress takes an address apart. Text that is not an address as a whole is none.
func parseAddress(text string) (a address, ok bool) {
	m := addressForm.FindStringSubmatch(text)
	if m == nil {
		return a, false
	}
	a.scheme, a.host, a.path, a.fragment = m[1], m[2], m[3], m[5]
	if i := strings.LastIndexByte(a.host, '@'); i >= 0 {
		a.user, a.host = a.host[:i], a.host[i+1:]
	}
	if m[4] != "" {
		a.hasQuery, a.query = true, strings.Split(m[4][1:], "&")
	}
	return a, true
}

// String is the address as it is written.
func (a address) String() string {
	text := a.scheme
	if a.user != "" {
		text += a.user + "@"
	}
	text += a.host + a.path
	if a.hasQuery {
		text += "?" + strings.Join(a.query, "&")
	}
	return text + a.fragment
}

// origin is where the address leads: scheme, host and port.
func (a address) origin() string {
	scheme, host := strings.ToLower(a.scheme), strings.ToLower(a.host)
	switch scheme {
	case "https://":
		host = strings.TrimSuffix(host, ":443")
	case "http://":
		host = strings.TrimSuffix(host, ":80")
	}
	return scheme + host
}

// maskSecrets returns the address without its secrets: the name and password before the host, and the values in the query that
// are, or look like, credentials.
func (a address) maskSecrets() address {
	if a.user != "" && !publicUserForm.MatchString(a.user) {
		a.user = mask
	}
	a.query = slices.Clone(a.query)
	for i, pair := range a.query {
		if name, value, _ := strings.Cut(pair, "="); isCredential(name, value) {
			a.query[i] = name + "=" + mask
		}
	}
	return a
}

// hasMask reports whether a secret of the address is masked.
func (a address) hasMask() bool {
	return a.user == mask || slices.ContainsFunc(a.query, func(pair string) bool { return strings.HasSuffix(pair, "="+mask) })
}

// restoreSecrets returns the address with the secrets that are masked put back from old, which leads to the same place.
func (a address) restoreSecrets(old address) address {
	if a.user == mask && old.user != "" {
		a.user = old.user
	}
	a.query = slices.Clone(a.query)
	from := old.query
	for i, pair := range a.query {
		name, value, _ := strings.Cut(pair, "=")
		if value != mask {
			continue
		}
		if at := slices.IndexFunc(from, func(p string) bool { return strings.HasPrefix(p, name+"=") }); at >= 0 {
			a.query[i], from = from[at], from[at+1:]
		}
	}
	return a
}

// publicUserForm is a name, or a name and a password, that are variables.
var publicUserForm = regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]*:?\}(:\$\{[A-Za-z_][A-Za-z0-9_]*:?\})?$`)

// Words of which the names of parameters are made that hold credentials, and names that are such a word.
var (
	credentialParts = []string{"token", "secret", "passw", "pwd", "apikey", "accesskey", "signature", "credential", "authorization", "session"}
	credentialNames = []string{"key", "sig", "auth", "code", "sas", "hmac"}
)

// minTokenLength is the length from which a value with letters and digits, and without spaces, looks like a token, in bytes.
const minTokenLength = 20

// isCredential reports whether a parameter of a query is, or looks like, a credential.
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

var tokenForm = regexp.MustCompile(`^[A-Za-z0-9_.~+=%-]*[A-Za-z][A-Za-z0-9_.~+=%-]*$`)
