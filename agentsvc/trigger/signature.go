package trigger

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks.
const (
	headerID        = "Webhook-Id"
	headerTime      = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// tolerance is how far the time of a delivery may be from now.
const tolerance = 5 * time.Minute

// maxDeliveryID bounds the id of a delivery, in bytes.
const maxDeliveryID = 256

// ErrUnsigned says that a delivery does not come from whom it should, without saying why.
var ErrUnsigned = errors.New("the delivery is not signed as it must be")

// Signature verifies where deliveries come from. A secret signs either the body, in hex in Header with or without
// "sha256=" before it, or as Standard Webhooks has it the id, the time and the body. Without a secret everybody may
// deliver.
type Signature struct {
	secret, standard []byte
	header           string
}

// NewSignature returns the signature by a secret, which may be "". One that begins with whsec_ is for Standard Webhooks
// what the base64 behind that says.
func NewSignature(secret, header string) *Signature {
	s := &Signature{[]byte(secret), []byte(secret), header}
	if coded, ok := strings.CutPrefix(secret, "whsec_"); ok {
		if key, err := base64.StdEncoding.DecodeString(coded); err == nil {
			s.standard = key
		}
	}
	return s
}

// Verify returns the id that the sender has given a delivery, "" if it has none that can be believed. It returns
// [ErrUnsigned] for one that is not signed by the secret, or whose signed time is not about now.
func (s *Signature) Verify(h http.Header, body []byte, now time.Time) (id string, err error) {
	id = h.Get(headerID)
	if len(id) > maxDeliveryID {
		return "", ErrUnsigned
	}
	switch {
	case len(s.secret) == 0:
		return id, nil
	case h.Get(headerSignature) != "":
		return id, s.verifyStandard(id, h.Get(headerTime), h.Get(headerSignature), body, now)
	}
	given, err := hex.DecodeString(strings.TrimPrefix(h.Get(s.header), "sha256="))
	if err != nil || !hmac.Equal(given, sum(s.secret, body)) {
		return "", ErrUnsigned
	}
	return "", nil // nobody has signed the id
}

func (s *Signature) verifyStandard(id, at, signatures string, body []byte, now time.Time) error {
	seconds, err := strconv.ParseInt(at, 10, 64)
	if id == "" || err != nil || time.Unix(seconds, 0).Sub(now).Abs() > tolerance {
		return ErrUnsigned
	}
	want := sum(s.standard, []byte(id+"."+at+"."), body)
	for one := range strings.FieldsSeq(signatures) {
		coded, ok := strings.CutPrefix(one, "v1,")
		given, err := base64.StdEncoding.DecodeString(coded)
		if ok && err == nil && hmac.Equal(given, want) {
			return nil
		}
	}
	return ErrUnsigned
}

func sum(secret []byte, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, secret)
	for _, p := range parts {
		_, _ = mac.Write(p)
	}
	return mac.Sum(nil)
}
