package tenancy

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// hashPrefix begins every hash that [Hasher.Sum] returns.
const hashPrefix = "hmac-sha256:"

// Hasher computes the keyed hashes by which the audit trail tells an app's values apart without holding them. The key is
// derived from the app's data key and destroyed with it: from then on a value, however short, cannot be found by trying.
// The zero value hashes nothing.
type Hasher struct{ key []byte }

// Sum returns the hash of a value: 128 bits of its HMAC-SHA256, in hex. It is "" from the zero [Hasher].
func (h Hasher) Sum(value []byte) string {
	if h.key == nil {
		return ""
	}
	mac := hmac.New(sha256.New, h.key)
	mac.Write(value)
	return hashPrefix + hex.EncodeToString(mac.Sum(nil)[:16])
}

// hashValue returns the hash of a decoded value. Documents that are equal have the same hash: the names of objects are sorted.
func (h Hasher) hashValue(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return "" // a decoded document holds nothing that cannot be written again
	}
	return h.Sum(raw)
}

// isHash reports whether v is what a [Hasher] returned.
func isHash(v any) bool {
	text, ok := v.(string)
	return ok && len(text) == len(hashPrefix)+32 && strings.HasPrefix(text, hashPrefix)
}

// newRandomHasher returns one whose key nobody keeps.
func newRandomHasher() Hasher {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return Hasher{key}
}

// defaultAppHasher returns the hasher of the default app, which has no data key and is never deleted.
func (s *Service) defaultAppHasher() (Hasher, error) {
	keys, err := s.keys.DeriveKeys("hashes of the audit trail of " + string(DefaultID))
	if err != nil {
		return Hasher{}, fmt.Errorf("derive the key of the default app's hashes: %w", err)
	}
	return Hasher{keys[0]}, nil
}

// auditHasher returns the hasher of an app as it was read. An app whose deletion has begun has none.
func (w *appState) auditHasher() Hasher {
	if w.fieldCipher == nil {
		return Hasher{}
	}
	return w.fieldCipher.hasher
}
