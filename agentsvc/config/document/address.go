package config

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// address is a URL of a document in its parts. It is parsed as text and not by net/url, because it may contain
// ${NAME}, and because the parts that are not masked must be written back unchanged.
type address struct {
	scheme   string // with ://
	user     string // name and password, without @; "" = none
	host     string // with the port
	path     string
	query    []string // name=value
	fragment string   // with #
	hasQuery bool     // there is a question mark, also with an empty query
}

// addressForm matches a text that is a URL as a whole.
var addressForm = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*://)([^/?#\s]*)([^?#\s]*)(\?[^#\s]*)?(#\S*)?$`)

// parseAddress splits a URL into its parts. It reports false for text that is not a URL as a whole.
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

// String returns the address as it was written.
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

// origin returns where the address leads: scheme, host and port, in lower case and without the scheme's default port.
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

// maskSecrets returns the address with its secrets masked: name and password before the host, and values of the query
// that are or look like credentials.
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

// hasMask reports whether a part of the address is masked.
func (a address) hasMask() bool {
	return a.user == mask || slices.ContainsFunc(a.query, func(pair string) bool { return strings.HasSuffix(pair, "="+mask) })
}

// restoreSecrets returns the address with its masked parts taken from old. The caller has checked that both have the
// same origin; otherwise a secret could be sent to another server. A parameter that occurs several times is restored
// in its order.
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
