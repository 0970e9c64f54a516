package trigger

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
)

// The headers of the Standard Webhooks specification.
const (
	headerID        = "Webhook-Id"
	headerTime      = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// idHeaders are the headers in which senders give a delivery's id, in this order: that of Standard Webhooks, the general
// one, and those of GitHub, Gitea and Shopify.
var idHeaders = []string{headerID, "Idempotency-Key", "X-Github-Delivery", "X-Gitea-Delivery", "X-Shopify-Webhook-Id"}

// timeTolerance is how far the timestamp of a delivery may be from the present, in both directions. It bounds replays;
// the reference libraries of Standard Webhooks use the same value.
const timeTolerance = 5 * time.Minute

// maxDeliveryID bounds the id of a delivery, in bytes.
const maxDeliveryID = 256

// ErrUnsigned reports that a delivery is not signed as required. It gives no reason, so that a sender learns nothing
// about the secret.
var ErrUnsigned = agentsvc.NewError(agentsvc.CodeUnsigned, "the signature of the delivery is missing or invalid")

// Signature verifies the signatures of deliveries. There are two forms: the body signed in hex in a header, with or
// without the prefix "sha256=", and Standard Webhooks, which signs the id, the timestamp and the body. The two forms
// never share a key: a text signed in one form could be presented as a body in the other. Without a secret every
// delivery is accepted.
type Signature struct {
	// secret is the key of the hex form; empty if nothing is signed.
	secret []byte
	// standardKey is the key of Standard Webhooks; nil if the secret is not of that kind.
	standardKey []byte
	// signatureHeader is the header with the signature in hex.
	signatureHeader string
	// timeHeader is the header with the timestamp that is signed before the body; "" if there is none.
	timeHeader string
}

// NewSignature returns the verifier for a secret, which may be "". A secret that begins with whsec_ also accepts
// Standard Webhooks, with the key that follows in base64. In the hex form the key is the whole text and the signature
// is in header. If timeHeader is not "", each delivery has its timestamp there, in Unix seconds; the signed text is
// then the timestamp, a dot and the body.
func NewSignature(secret, header, timeHeader string) (*Signature, error) {
	s := &Signature{signatureHeader: header, timeHeader: timeHeader}
	if secret == "" {
		return s, nil
	}
	key, err := egress.ParseSigningKey(secret)
	if err != nil {
		return nil, agentsvc.NewInvalidError("secret", "%v", err)
	}
	s.secret = []byte(secret)
	if egress.IsStandardSecret(secret) {
		s.standardKey = key
	}
	return s, nil
}

// IsRequired reports whether deliveries must be signed.
func (s *Signature) IsRequired() bool { return len(s.secret) > 0 }

// BodyVerifier verifies one delivery while its body is read: the body is written to it.
type BodyVerifier struct {
	id DeliveryID
	// mac is nil if deliveries need no signature.
	mac hash.Hash
	// signatures are the given ones; one of them must match.
	signatures [][]byte
}

// BeginVerification returns the verifier of a delivery with headers h. It returns [ErrUnsigned] if no body could be
// valid: the signature is missing or malformed, or the timestamp is not within timeTolerance.
func (s *Signature) BeginVerification(h http.Header, now time.Time) (*BodyVerifier, error) {
	id := readDeliveryID(h)
	if len(id) > maxDeliveryID {
		return nil, ErrUnsigned
	}
	switch {
	case !s.IsRequired():
		return &BodyVerifier{id: DeliveryID{Text: id}}, nil
	case s.standardKey != nil && h.Get(headerSignature) != "":
		return s.beginStandard(h.Get(headerID), h.Get(headerTime), h.Get(headerSignature), now)
	}
	// signed is the text that is signed before the body.
	var signed []byte
	if s.timeHeader != "" {
		at := h.Get(s.timeHeader)
		if !isTimely(at, now) {
			return nil, ErrUnsigned
		}
		signed = []byte(at + ".")
	}
	given, err := hex.DecodeString(strings.TrimPrefix(h.Get(s.signatureHeader), "sha256="))
	if err != nil || len(given) != sha256.Size {
		return nil, ErrUnsigned
	}
	p := &BodyVerifier{id: DeliveryID{Text: id, IsUnsigned: true}, mac: hmac.New(sha256.New, s.secret), signatures: [][]byte{given}}
	_, _ = p.mac.Write(signed)
	return p, nil
}

// readDeliveryID returns the id that the sender gave a delivery, "" if none.
func readDeliveryID(h http.Header) string {
	for _, name := range idHeaders {
		if id := h.Get(name); id != "" {
			return id
		}
	}
	return ""
}

// isTimely reports whether at, in Unix seconds, is within timeTolerance of now.
func isTimely(at string, now time.Time) bool {
	seconds, err := strconv.ParseInt(at, 10, 64)
	return err == nil && time.Unix(seconds, 0).Sub(now).Abs() <= timeTolerance
}

// beginStandard is BeginVerification for Standard Webhooks. The header may have several signatures, of old and new
// keys; those of other versions than v1 are ignored.
func (s *Signature) beginStandard(id, at, signatures string, now time.Time) (*BodyVerifier, error) {
	if id == "" || !isTimely(at, now) {
		return nil, ErrUnsigned
	}
	p := &BodyVerifier{id: DeliveryID{Text: id}, mac: hmac.New(sha256.New, s.standardKey)}
	_, _ = p.mac.Write([]byte(id + "." + at + "."))
	for one := range strings.FieldsSeq(signatures) {
		if coded, ok := strings.CutPrefix(one, "v1,"); ok {
			if given, err := base64.StdEncoding.DecodeString(coded); err == nil && len(given) == sha256.Size {
				p.signatures = append(p.signatures, given)
			}
		}
	}
	if len(p.signatures) == 0 {
		return nil, ErrUnsigned
	}
	return p, nil
}

// Write adds a piece of the body. It never fails.
func (v *BodyVerifier) Write(b []byte) (int, error) {
	if v.mac != nil {
		return v.mac.Write(b)
	}
	return len(b), nil
}

// VerifyBody returns the delivery's id. It returns [ErrUnsigned] if no signature matches the body.
func (v *BodyVerifier) VerifyBody() (id DeliveryID, err error) {
	if v.mac == nil {
		return v.id, nil
	}
	want := v.mac.Sum(nil)
	for _, given := range v.signatures {
		// hmac.Equal takes the same time for every input.
		if hmac.Equal(given, want) {
			return v.id, nil
		}
	}
	return DeliveryID{}, ErrUnsigned
}

// VerifyDelivery verifies a delivery whose body is complete: BeginVerification, Write and VerifyBody.
func (s *Signature) VerifyDelivery(h http.Header, body []byte, now time.Time) (id DeliveryID, err error) {
	p, err := s.BeginVerification(h, now)
	if err != nil {
		return id, err
	}
	_, _ = p.Write(body)
	return p.VerifyBody()
}
