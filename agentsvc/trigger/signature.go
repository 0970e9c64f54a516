package trigger

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
)

// The headers of Standard Webhooks.
const (
	headerID        = "Webhook-Id"
	headerTime      = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// timeTolerance is how far the time of a delivery may be from now.
const timeTolerance = 5 * time.Minute

// maxDeliveryID bounds the id of a delivery, in bytes.
const maxDeliveryID = 256

// ErrUnsigned says that a delivery does not come from whom it should, without saying why.
var ErrUnsigned = errors.New("the delivery is not signed as it must be")

// Signature verifies where deliveries come from. A secret signs either the body, in hex in a header with or without
// "sha256=" before it, or as Standard Webhooks has it the id, the time and the body. No key is used for both forms: the id, the
// time and the body of one form would be a body of the other. Without a secret everybody may deliver.
type Signature struct {
	secret          []byte // the key of the hex form
	standardKey     []byte // the key of Standard Webhooks, nil where the secret is not of that kind
	signatureHeader string // carries the signature in hex
	timeHeader      string // the header with the time that is signed before the body; "" = there is none
}

// NewSignature returns the signature by a secret, which may be "". Only one that begins with whsec_ is for Standard Webhooks:
// its key is what the base64 behind that says. In the other form the key is the whole text, the signature is in header, and where timeHeader is not "" every
// delivery has its time there, in seconds since 1970, which is signed with a dot before the body.
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

// IsRequired reports whether deliveries must be signed: there is a secret.
func (s *Signature) IsRequired() bool { return len(s.secret) > 0 }

// BodyVerifier verifies one delivery. What is written to it is the delivery's body.
type BodyVerifier struct {
	id         string    // that counts if the delivery is signed
	mac        hash.Hash // nil = everybody may deliver
	signatures [][]byte  // of which one must be that of the body
}

// BeginVerification returns the proof of a delivery with headers h, whose body is yet to be written to it. It returns [ErrUnsigned] for one
// that no body makes a good one: it lacks a signature, or its signed time is not about now.
func (s *Signature) BeginVerification(h http.Header, now time.Time) (*BodyVerifier, error) {
	id := h.Get(headerID)
	if len(id) > maxDeliveryID {
		return nil, ErrUnsigned
	}
	switch {
	case !s.IsRequired():
		return &BodyVerifier{id: id}, nil
	case s.standardKey != nil && h.Get(headerSignature) != "":
		return s.beginStandard(id, h.Get(headerTime), h.Get(headerSignature), now)
	}
	var signed []byte // before the body
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
	p := &BodyVerifier{mac: hmac.New(sha256.New, s.secret), signatures: [][]byte{given}} // nobody has signed the id
	_, _ = p.mac.Write(signed)
	return p, nil
}

// isTimely reports whether at, in seconds since 1970, is about now.
func isTimely(at string, now time.Time) bool {
	seconds, err := strconv.ParseInt(at, 10, 64)
	return err == nil && time.Unix(seconds, 0).Sub(now).Abs() <= timeTolerance
}

func (s *Signature) beginStandard(id, at, signatures string, now time.Time) (*BodyVerifier, error) {
	if id == "" || !isTimely(at, now) {
		return nil, ErrUnsigned
	}
	p := &BodyVerifier{id: id, mac: hmac.New(sha256.New, s.standardKey)}
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

// Write takes the next piece of the body. It returns no error.
func (p *BodyVerifier) Write(b []byte) (int, error) {
	if p.mac != nil {
		return p.mac.Write(b)
	}
	return len(b), nil
}

// VerifyBody returns the id that the sender has given the delivery, "" if it has none that can be believed. It returns [ErrUnsigned] if
// the body is not the one that was signed.
func (p *BodyVerifier) VerifyBody() (id string, err error) {
	if p.mac == nil {
		return p.id, nil
	}
	want := p.mac.Sum(nil)
	for _, given := range p.signatures {
		if hmac.Equal(given, want) {
			return p.id, nil
		}
	}
	return "", ErrUnsigned
}

// VerifyDelivery is Begin, Write and End for a body that is there as a whole.
func (s *Signature) VerifyDelivery(h http.Header, body []byte, now time.Time) (id string, err error) {
	p, err := s.BeginVerification(h, now)
	if err != nil {
		return "", err
	}
	_, _ = p.Write(body)
	return p.VerifyBody()
}
