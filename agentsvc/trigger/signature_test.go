package trigger_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/trigger"
)

func mac(key []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}

// TestVerify tells good deliveries from others.
func TestVerify(t *testing.T) {
	t.Parallel()
	const secret, body = "a secret of the test", `{"a": 1}`
	now := time.Unix(1_700_000_000, 0)
	simple := hex.EncodeToString(mac([]byte(secret), body))
	standard := func(key []byte, id string, at int64, body string) []string {
		return []string{"Webhook-Id", id, "Webhook-Timestamp", fmt.Sprint(at), "Webhook-Signature",
			"v1,AAAA v1," + base64.StdEncoding.EncodeToString(mac(key, fmt.Sprintf("%s.%d.%s", id, at, body)))}
	}
	// The example of the specification of Standard Webhooks.
	example := []string{"Webhook-Id", "msg_p5jXN8AQM9LWM0D4loKWxJek", "Webhook-Timestamp", "1614265330", "Webhook-Signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}
	for _, c := range []struct {
		name, secret string
		headers      []string
		body         string
		now          time.Time
		id           string
		refused      bool
	}{
		{name: "hex", secret: secret, headers: []string{"X-Signature", simple}},
		{name: "hex with its algorithm", secret: secret, headers: []string{"X-Signature", "sha256=" + simple}},
		{name: "hex in capitals", secret: secret, headers: []string{"X-Signature", strings.ToUpper(simple)}},
		{name: "an id that nobody has signed", secret: secret, headers: []string{"X-Signature", simple, "Webhook-Id", "1"}},
		{name: "standard", secret: secret, headers: standard([]byte(secret), "m1", 1_700_000_000, body), id: "m1"},
		{name: "standard, late", secret: secret, headers: standard([]byte(secret), "m1", 1_700_000_000-300, body), id: "m1"},
		{name: "standard by a coded secret", secret: "whsec_" + base64.StdEncoding.EncodeToString([]byte(secret)), headers: standard([]byte(secret), "m1", 1_700_000_000, body), id: "m1"},
		{name: "standard, the example", secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", headers: example, body: `{"test": 2432232314}`, now: time.Unix(1614265330, 0), id: "msg_p5jXN8AQM9LWM0D4loKWxJek"},
		{name: "without a secret", headers: []string{"Webhook-Id", "m2"}, id: "m2"},
		{name: "without a secret and an id"},

		{name: "nothing", secret: secret, refused: true},
		{name: "another secret's", secret: "another", headers: []string{"X-Signature", simple}, refused: true},
		{name: "another body's", secret: secret, headers: []string{"X-Signature", simple}, body: `{"a": 2}`, refused: true},
		{name: "another header's", secret: secret, headers: []string{"X-Hub-Signature-256", simple}, refused: true},
		{name: "a piece", secret: secret, headers: []string{"X-Signature", simple[:32]}, refused: true},
		{name: "empty", secret: secret, headers: []string{"X-Signature", "sha256="}, refused: true},
		{name: "standard, too late", secret: secret, headers: standard([]byte(secret), "m1", 1_700_000_000-301, body), refused: true},
		{name: "standard, of the future", secret: secret, headers: standard([]byte(secret), "m1", 1_700_000_000+301, body), refused: true},
		{name: "standard, another body's", secret: secret, headers: standard([]byte(secret), "m1", 1_700_000_000, "{}"), refused: true},
		{name: "standard, without an id", secret: secret, headers: standard([]byte(secret), "", 1_700_000_000, body), refused: true},
		{name: "standard, another id", secret: secret, headers: append(standard([]byte(secret), "m1", 1_700_000_000, body), "Webhook-Id", "m2"), refused: true},
		{name: "standard beside a good one", secret: secret, headers: append(standard([]byte("another"), "m1", 1_700_000_000, body), "X-Signature", simple), refused: true},
		{name: "a long id", headers: []string{"Webhook-Id", strings.Repeat("x", 257)}, refused: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			for i := 0; i < len(c.headers); i += 2 {
				h.Set(c.headers[i], c.headers[i+1])
			}
			if c.body == "" {
				c.body = body
			}
			if c.now.IsZero() {
				c.now = now
			}
			id, err := trigger.NewSignature(c.secret, "X-Signature").Verify(h, []byte(c.body), c.now)
			if (err != nil) != c.refused || err == nil && id != c.id {
				t.Errorf("id %q, %v", id, err)
			}
		})
	}
}

// TestDelivery tells deliveries apart.
func TestDelivery(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, c := range []struct{ id, body, same string }{{"a", "1", "a"}, {"a", "2", "a"}, {"b", "1", "b"}, {"", "1", "1"}, {"", "1", "1"}, {"", "a", "body a"}} {
		key := trigger.Delivery(c.id, []byte(c.body))
		if was, known := seen[key]; known && was != c.same || len(key) > 255 {
			t.Errorf("%q %q has the key of %s", c.id, c.body, was)
		}
		seen[key] = c.same
	}
	if len(seen) != 4 {
		t.Errorf("there are %d deliveries, want 4", len(seen))
	}
}
