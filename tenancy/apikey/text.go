package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"regexp"
	"strings"
)

// A key is stoa_APP_ followed by its id, by which it is looked up, and a secret of 26 characters of 5 bits each (130
// bits).
const (
	idLength     = 12
	secretLength = 26
)

// keyPattern matches the form of a key; its group is the id.
var keyPattern = regexp.MustCompile(`^stoa_[a-z0-9-]{1,63}_([a-z2-7]{12})[a-z2-7]{26}$`)

// IsKey reports whether credential has the form of an API key, valid or not. Tokens and admin secrets do not.
func IsKey(credential string) bool { return keyPattern.MatchString(credential) }

// ParseID returns the id in the text of a key; false if text does not have the form of a key.
func ParseID(text string) (id string, ok bool) {
	m := keyPattern.FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	return m[1], true
}

// NewID returns the id of a new key.
func NewID() string { return randomText(idLength) }

// Prefix returns the part of a key before its secret, by which people recognise it.
func Prefix(app, id string) string { return "stoa_" + app + "_" + id }

// NewText returns the text of a key with a new secret.
func NewText(app, id string) string { return Prefix(app, id) + randomText(secretLength) }

// randomText returns n random characters of the base32 alphabet in lower case, 5 bits each.
func randomText(n int) string { return strings.ToLower(rand.Text()[:n]) }

// Hash returns the SHA-256 of the text of a key, which is stored in its place. A plain hash is enough: the secret cannot
// be guessed, unlike a password.
func Hash(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}
