package authz

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"

	"stoa/tenancy/apikey"
)

// minAdminSecretBytes is the least length of an admin secret; openssl rand -base64 48 gives 64.
const minAdminSecretBytes = 32

// Attempts counts failed attempts by client address. [ratelimit.Throttle] implements it.
type Attempts interface {
	// CountFailure counts one failed attempt, and returns an error if address has failed too often.
	CountFailure(ctx context.Context, address string) error
}

// AdminSecret verifies the secret of the platform's operator; during a change two secrets are valid. Only their SHA-256
// hashes are kept. It is immutable.
type AdminSecret struct {
	hashes   [][sha256.Size]byte
	attempts Attempts
}

// NewAdminSecret parses one secret, or two separated by a comma. Each must have at least 32 bytes, and not the form of
// a token or of an API key, which would be verified as such.
func NewAdminSecret(value string, attempts Attempts) (*AdminSecret, error) {
	a := &AdminSecret{attempts: attempts}
	for i, secret := range strings.Split(value, ",") {
		secret = strings.TrimSpace(secret)
		switch {
		case i > 1:
			return nil, fmt.Errorf("the admin secret has more than two values: keep the old and the new one, with a comma between them")
		case len(secret) < minAdminSecretBytes:
			return nil, fmt.Errorf("the admin secret (value %d) has %d bytes, it needs at least %d: take the output of `openssl rand -base64 48`", i+1, len(secret), minAdminSecretBytes)
		case apikey.IsKey(secret):
			return nil, fmt.Errorf("the admin secret (value %d) has the form of an API key: choose another", i+1)
		case IsToken(secret):
			return nil, fmt.Errorf("the admin secret (value %d) has two dots and would be taken for a token: choose one without", i+1)
		}
		a.hashes = append(a.hashes, sha256.Sum256([]byte(secret)))
	}
	return a, nil
}

// VerifySecret returns the operator's principal if credential is a valid secret. Otherwise it returns an
// [ErrUnauthenticated], or the error of [Attempts] if address has failed too often. A correct secret is accepted
// even then: several clients may share an address, and a secret of this length cannot be guessed. The comparison takes
// the same time for all secrets.
func (a *AdminSecret) VerifySecret(ctx context.Context, address, credential string) (Principal, error) {
	if credential == "" {
		return Principal{}, unauthenticated("no credential")
	}
	hash := sha256.Sum256([]byte(credential))
	match := 0
	for _, h := range a.hashes {
		match |= subtle.ConstantTimeCompare(hash[:], h[:])
	}
	if match == 1 {
		return Principal{Subject: "admin", Roles: []string{RolePlatformOperator}, Platform: true}, nil
	}
	if err := a.attempts.CountFailure(ctx, address); err != nil {
		return Principal{}, err
	}
	return Principal{}, unauthenticated("wrong admin secret")
}
