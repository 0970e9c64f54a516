package egress

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// secretPrefix begins a signing secret in the format of Standard Webhooks.
const secretPrefix = "whsec_"

// ParseSecret returns the key of a signing secret in the format of Standard Webhooks: whsec_ and 24 to 64 bytes in
// base64.
func ParseSecret(text string) ([]byte, error) {
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, secretPrefix))
	if err != nil || !strings.HasPrefix(text, secretPrefix) || len(secret) < minKeyBytes || len(secret) > maxKeyBytes {
		return nil, errors.New("must be whsec_ and 24 to 64 bytes in base64")
	}
	return secret, nil
}

// Bounds of a signing key. The bytes are those of Standard Webhooks; shorter keys can be guessed. A secret that is
// used as text may be longer, because it is often hexadecimal.
const (
	minKeyBytes = 24
	maxKeyBytes = 64
	maxKeyText  = 256 // bytes of a secret that is used as text

	minDistinctBytes = 8 // a random key of 24 bytes practically never has fewer
)

// errWeakKey is returned for a key such as "aaaaaaaaaaaaaaaaaaaaaaaa".
var errWeakKey = fmt.Errorf("has fewer than %d different bytes and can be guessed: openssl rand -hex 32 makes a good one", minDistinctBytes)

// ParseSigningKey returns the key of a sender that signs either as Standard Webhooks defines or with the text itself
// as the key. A text that begins with whsec_ must be in the format of Standard Webhooks; any other text is the key.
// Weak and short keys are errors.
func ParseSigningKey(text string) (key []byte, err error) {
	key = []byte(text)
	if IsStandardSecret(text) {
		if key, err = ParseSecret(text); err != nil {
			return nil, err
		}
	} else if len(text) < minKeyBytes || len(text) > maxKeyText {
		return nil, fmt.Errorf("must be %d to %d bytes of text, or %s and %d to %d bytes in base64: openssl rand -hex 32 makes one", minKeyBytes, maxKeyText, secretPrefix, minKeyBytes, maxKeyBytes)
	}
	different := map[byte]bool{}
	for _, b := range key {
		different[b] = true
	}
	if len(different) < minDistinctBytes {
		return nil, errWeakKey
	}
	return key, nil
}

// IsStandardSecret reports whether text is a secret in the format of Standard Webhooks, by its prefix alone.
func IsStandardSecret(text string) bool { return strings.HasPrefix(text, secretPrefix) }

// SignWebhook sets the headers of Standard Webhooks on a request: the message's id, which is the same in every
// attempt, the time in Unix seconds, and, unless secret is nil, the HMAC-SHA256 of id, time and body with dots
// between them.
func SignWebhook(h http.Header, secret []byte, id string, at time.Time, body []byte) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", stamp)
	if secret == nil {
		return
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// WithoutRedirects returns a client like c that follows no redirect: a signed body must reach the configured address
// only. A redirect is returned as the response.
func WithoutRedirects(c *http.Client) *http.Client {
	direct := *c
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &direct
}
