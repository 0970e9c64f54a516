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

// prefix begins a signing secret as Standard Webhooks writes it.
const prefix = "whsec_"

// ParseSecret reads a signing secret as Standard Webhooks has it: whsec_ and 24 to 64 bytes in base64.
func ParseSecret(text string) ([]byte, error) {
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, prefix))
	if err != nil || !strings.HasPrefix(text, prefix) || len(secret) < minKey || len(secret) > maxKey {
		return nil, errors.New("must be whsec_ and 24 to 64 bytes in base64")
	}
	return secret, nil
}

// The bounds of a signing key, in bytes: shorter ones can be guessed. Text may be longer, for it is often hex.
const (
	minKey  = 24
	maxKey  = 64
	maxText = 256

	minDifferent = 8 // different bytes: nobody draws a key by chance that has fewer
)

var errWeak = fmt.Errorf("has fewer than %d different bytes and can be guessed: openssl rand -hex 32 makes a good one", minDifferent)

// ParseKey reads the secret of a sender who signs either as Standard Webhooks has it, or with the text itself as the key.
// Behind whsec_ there is base64 and nothing else: then key is what that says; else it is the text.
func ParseKey(text string) (key []byte, err error) {
	key = []byte(text)
	if IsCoded(text) {
		if key, err = ParseSecret(text); err != nil {
			return nil, err
		}
	} else if len(text) < minKey || len(text) > maxText {
		return nil, fmt.Errorf("must be %d to %d bytes of text, or %s and %d to %d bytes in base64: openssl rand -hex 32 makes one", minKey, maxText, prefix, minKey, maxKey)
	}
	different := map[byte]bool{}
	for _, b := range key {
		different[b] = true
	}
	if len(different) < minDifferent {
		return nil, errWeak
	}
	return key, nil
}

// IsCoded reports whether a secret is one of Standard Webhooks: whsec_ and base64.
func IsCoded(text string) bool { return strings.HasPrefix(text, prefix) }

// Sign adds to the header of a request what Standard Webhooks wants: the id of the message, which is the same whenever it is
// sent, the time, and where there is a secret the signature of both and the body.
func Sign(h http.Header, secret []byte, id string, at time.Time, body []byte) {
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

// Direct returns a client like c that follows no redirect: what is sent reaches the address it was meant for or nobody.
func Direct(c *http.Client) *http.Client {
	direct := *c
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &direct
}
