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

// secretPrefix begins a signing secret as Standard Webhooks writes it.
const secretPrefix = "whsec_"

// ParseSecret reads a signing secret as Standard Webhooks has it: whsec_ and 24 to 64 bytes in base64.
func ParseSecret(text string) ([]byte, error) {
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, secretPrefix))
	if err != nil || !strings.HasPrefix(text, secretPrefix) || len(secret) < minKeyBytes || len(secret) > maxKeyBytes {
		return nil, errors.New("must be whsec_ and 24 to 64 bytes in base64")
	}
	return secret, nil
}

// The bounds of a signing key, in bytes: shorter ones can be guessed. Text may be longer, for it is often hex.
const (
	minKeyBytes = 24
	maxKeyBytes = 64
	maxKeyText  = 256

	minDistinctBytes = 8 // different bytes: nobody draws a key by chance that has fewer
)

var errWeakKey = fmt.Errorf("has fewer than %d different bytes and can be guessed: openssl rand -hex 32 makes a good one", minDistinctBytes)

// ParseSigningKey reads the secret of a sender who signs either as Standard Webhooks has it, or with the text itself as the key.
// Behind whsec_ there is base64 and nothing else: then key is what that says; else it is the text.
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

// IsStandardSecret reports whether a secret is one of Standard Webhooks: whsec_ and base64.
func IsStandardSecret(text string) bool { return strings.HasPrefix(text, secretPrefix) }

// SignWebhook adds to the header of a request what Standard Webhooks wants: the id of the message, which is the same whenever it is
// sent, the time, and where there is a secret the signature of both and the body.
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

// WithoutRedirects returns a client like c that follows no redirect: what is sent reaches the address it was meant for or nobody.
func WithoutRedirects(c *http.Client) *http.Client {
	direct := *c
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &direct
}
