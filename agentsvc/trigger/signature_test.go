package trigger_test

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/trigger"
)

func computeMAC(key []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}

// TestVerifyDelivery checks valid and invalid deliveries.
func TestVerifyDelivery(t *testing.T) {
	t.Parallel()
	const secret, another, body = "a secret of the test alone", "another secret of the test", `{"a": 1}`
	coded := "whsec_" + base64.StdEncoding.EncodeToString([]byte(secret))
	now := time.Unix(1_700_000_000, 0)
	simple := hex.EncodeToString(computeMAC([]byte(secret), body))
	standard := func(key []byte, id string, at int64, body string) []string {
		return []string{"Webhook-Id", id, "Webhook-Timestamp", fmt.Sprint(at), "Webhook-Signature",
			"v1,AAAA v1," + base64.StdEncoding.EncodeToString(computeMAC(key, fmt.Sprintf("%s.%d.%s", id, at, body)))}
	}
	// The example of the Standard Webhooks specification.
	example := []string{"Webhook-Id", "msg_p5jXN8AQM9LWM0D4loKWxJek", "Webhook-Timestamp", "1614265330", "Webhook-Signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}
	for _, c := range []struct {
		name, secret string
		headers      []string
		body         string
		now          time.Time
		id           string
		unsigned     bool
		refused      bool
	}{
		{name: "hex", secret: secret, headers: []string{"X-Signature", simple}},
		{name: "hex with its algorithm", secret: secret, headers: []string{"X-Signature", "sha256=" + simple}},
		{name: "hex in capitals", secret: secret, headers: []string{"X-Signature", strings.ToUpper(simple)}},
		{name: "an id that is not signed", secret: secret, headers: []string{"X-Signature", simple, "Webhook-Id", "1"}, id: "1", unsigned: true},
		{name: "a general id", secret: secret, headers: []string{"X-Signature", simple, "Idempotency-Key", "2"}, id: "2", unsigned: true},
		{name: "a provider's id", secret: secret, headers: []string{"X-Signature", simple, "X-GitHub-Delivery", "3"}, id: "3", unsigned: true},
		{name: "standard", secret: coded, headers: standard([]byte(secret), "m1", 1_700_000_000, body), id: "m1"},
		{name: "standard by a secret that is not coded", secret: secret, headers: standard([]byte(secret), "m1", 1_700_000_000, body), refused: true},
		{name: "hex by a coded secret", secret: coded, headers: []string{"X-Signature", hex.EncodeToString(computeMAC([]byte(coded), body))}},
		{name: "standard, late", secret: coded, headers: standard([]byte(secret), "m1", 1_700_000_000-300, body), id: "m1"},
		{name: "standard, the example", secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", headers: example, body: `{"test": 2432232314}`, now: time.Unix(1614265330, 0), id: "msg_p5jXN8AQM9LWM0D4loKWxJek"},
		{name: "without a secret", headers: []string{"Webhook-Id", "m2"}, id: "m2"},
		{name: "without a secret and an id"},

		{name: "nothing", secret: secret, refused: true},
		{name: "another secret's", secret: another, headers: []string{"X-Signature", simple}, refused: true},
		{name: "another body's", secret: secret, headers: []string{"X-Signature", simple}, body: `{"a": 2}`, refused: true},
		{name: "another header's", secret: secret, headers: []string{"X-Hub-Signature-256", simple}, refused: true},
		{name: "a piece", secret: secret, headers: []string{"X-Signature", simple[:32]}, refused: true},
		{name: "empty", secret: secret, headers: []string{"X-Signature", "sha256="}, refused: true},
		{name: "standard, too late", secret: coded, headers: standard([]byte(secret), "m1", 1_700_000_000-301, body), refused: true},
		{name: "standard, of the future", secret: coded, headers: standard([]byte(secret), "m1", 1_700_000_000+301, body), refused: true},
		{name: "standard, another body's", secret: coded, headers: standard([]byte(secret), "m1", 1_700_000_000, "{}"), refused: true},
		{name: "standard, without an id", secret: coded, headers: standard([]byte(secret), "", 1_700_000_000, body), refused: true},
		{name: "standard, another id", secret: coded, headers: append(standard([]byte(secret), "m1", 1_700_000_000, body), "Webhook-Id", "m2"), refused: true},
		{name: "standard beside a good one", secret: coded, headers: append(standard([]byte(another), "m1", 1_700_000_000, body), "X-Signature", hex.EncodeToString(computeMAC([]byte(coded), body))), refused: true},
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
			s, err := trigger.NewSignature(c.secret, "X-Signature", "")
			if err != nil {
				t.Fatal(err)
			}
			id, err := s.VerifyDelivery(h, []byte(c.body), c.now)
			if (err != nil) != c.refused || err == nil && (id.Text != c.id || id.Text != "" && id.IsUnsigned != c.unsigned) {
				t.Errorf("id %+v, %v", id, err)
			}
		})
	}
}

// TestDeliveryKey checks that deliveries are the same only by their ids: one without an id is always new, and one whose
// id is not signed is the same only with the same body.
func TestDeliveryKey(t *testing.T) {
	t.Parallel()
	key := func(id string, isUnsigned bool, body string) string {
		return trigger.DeliveryID{Text: id, IsUnsigned: isUnsigned}.Key([]byte(body))
	}
	if key("", false, "1") != "" || key("", true, "1") != "" {
		t.Error("a delivery without an id has a key")
	}
	if key("a", false, "1") != key("a", false, "2") {
		t.Error("a delivery that is repeated under a signed id has another key")
	}
	if again := key("a", true, "1"); again != key("a", true, "1") {
		t.Error("a repeated delivery has another key")
	}
	if key("a", false, "1") == key("b", false, "1") || key("a", true, "1") == key("a", true, "2") || key("a", true, "1") == key("b", true, "1") {
		t.Error("different deliveries have one key")
	}
}

// secretOfLength returns a secret of n bytes.
func secretOfLength(n int) string { return strings.Repeat("abcdefgh12345678", n/16+1)[:n] }

// TestSecretBounds checks that a secret that could be guessed is refused, also an empty whsec_ one, and that malformed
// ones are.
func TestSecretBounds(t *testing.T) {
	t.Parallel()
	coded := func(n int) string {
		return "whsec_" + base64.StdEncoding.EncodeToString([]byte(secretOfLength(n)))
	}
	for _, c := range []struct {
		secret string
		good   bool
	}{
		{"", true}, // the configuration's validation decides whether it may be empty
		{"whsec_", false},
		{coded(1), false},
		{coded(23), false},
		{coded(24), true},
		{coded(64), true},
		{coded(65), false},
		{"whsec_" + strings.Repeat("!", 40), false},
		{strings.TrimRight(coded(25), "="), false},
		{" " + coded(10), false},
		{"x", false},
		{secretOfLength(23), false},
		{secretOfLength(24), true},
		{secretOfLength(256), true},
		{secretOfLength(257), false},
		{strings.Repeat("x", 32), false},
		{strings.Repeat("secret", 6), false},
		{strings.Repeat("12345678", 4), true},
		{"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32)), false},
	} {
		s, err := trigger.NewSignature(c.secret, "X-Signature", "")
		var invalid *agentsvc.Error
		if c.good != (err == nil) || err != nil && (!errors.As(err, &invalid) || invalid.Field != "secret") {
			t.Errorf("%q: %v", c.secret, err)
		}
		if err != nil && c.secret != "" && len(c.secret) > 8 && strings.Contains(err.Error(), c.secret[6:]) {
			t.Errorf("the error shows the secret: %v", err)
		}
		if err != nil || c.secret == "" {
			continue
		}
		h := http.Header{}
		h.Set("Webhook-Id", "m1")
		h.Set("Webhook-Timestamp", "1700000000")
		h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(computeMAC(nil, "m1.1700000000.{}")))
		if _, err := s.VerifyDelivery(h, []byte("{}"), time.Unix(1_700_000_000, 0)); err == nil {
			t.Errorf("%q: signed with the empty key", c.secret)
		}
	}
}

// TestSignedTime checks a trigger with a header for the timestamp: the timestamp is signed with the body and bounds how
// long a recorded delivery can be repeated.
func TestSignedTime(t *testing.T) {
	t.Parallel()
	const secret, body = "a secret of the test alone", `{"a": 1}`
	now := time.Unix(1_700_000_000, 0)
	sign := func(text string) string { return hex.EncodeToString(computeMAC([]byte(secret), text)) }
	at := func(seconds int64) (string, string) {
		return fmt.Sprint(seconds), sign(fmt.Sprintf("%d.%s", seconds, body))
	}
	timed, err := trigger.NewSignature(secret, "X-Signature", "X-Time")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		time string
		sign string
		body string
		good bool
	}{
		{name: "now", good: true},
		{name: "late", time: "-300", good: true},
		{name: "early", time: "300", good: true},
		{name: "too late", time: "-301"},
		{name: "too early", time: "301"},
		{name: "without its time", time: "none"},
		{name: "its time put into the body", time: "none", body: "1700000000." + body},
		{name: "another time", time: "1", sign: sign("1700000000." + body)},
		{name: "the time not signed", sign: sign(body)},
		{name: "no number", time: "soon", sign: sign("soon." + body)},
		{name: "another body", body: "{}"},
	} {
		h := http.Header{}
		offset, err := strconv.ParseInt(cmp.Or(c.time, "0"), 10, 64)
		stamp, signature := at(now.Unix() + offset)
		if err != nil {
			stamp = c.time
		}
		if c.time != "none" {
			h.Set("X-Time", stamp)
		}
		h.Set("X-Signature", cmp.Or(c.sign, signature))
		if _, err := timed.VerifyDelivery(h, []byte(cmp.Or(c.body, body)), now); (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	plain, err := trigger.NewSignature(secret, "X-Signature", "")
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{"X-Signature": {sign(body)}, "X-Time": {"1"}}
	if _, err := plain.VerifyDelivery(h, []byte(body), now); err != nil {
		t.Errorf("a header that the trigger does not name: %v", err)
	}
}

// TestOneFormReplaysInNoOther checks that what a sender has signed in one form is not valid in the other, with headers
// and a body composed from a recorded delivery.
func TestOneFormReplaysInNoOther(t *testing.T) {
	t.Parallel()
	const id, stamp, body = "1700000000", "1700000000", `{"a": 1}`
	now := time.Unix(1_700_000_000, 0)
	for _, secret := range []string{"a secret of the test alone", "whsec_" + base64.StdEncoding.EncodeToString([]byte("a secret of the test alone"))} {
		for _, timeHeader := range []string{"", "X-Time"} {
			s, err := trigger.NewSignature(secret, "X-Signature", timeHeader)
			if err != nil {
				t.Fatal(err)
			}
			keys := map[string][]byte{"the text": []byte(secret), "what it says": []byte("a secret of the test alone")}
			for name, key := range keys {
				sum := computeMAC(key, id+"."+stamp+"."+body)
				standard := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {stamp}, "Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(sum)}}
				_, isStandard := s.VerifyDelivery(standard, []byte(body), now)
				plain := http.Header{"X-Signature": {hex.EncodeToString(sum)}, "X-Time": {stamp}}
				recorded := map[string]error{}
				_, recorded["whole"] = s.VerifyDelivery(plain, []byte(id+"."+stamp+"."+body), now)
				_, recorded["behind the time"] = s.VerifyDelivery(plain, []byte(stamp+"."+body), now)
				for of, err := range recorded {
					if isStandard == nil && err == nil {
						t.Errorf("%.6s, time header %q, key %s: a delivery of one form is one of the other (%s) as well", secret, timeHeader, name, of)
					}
				}
			}
		}
	}
}
