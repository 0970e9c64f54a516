package egress

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ParseSecret reads a signing secret as Standard Webhooks has it: whsec_ and 24 to 64 bytes in base64.
func ParseSecret(text string) ([]byte, error) {
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_"))
	if err != nil || !strings.HasPrefix(text, "whsec_") || len(secret) < 24 || len(secret) > 64 {
		return nil, errors.New("must be whsec_ and 24 to 64 bytes in base64")
	}
	return secret, nil
}

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
