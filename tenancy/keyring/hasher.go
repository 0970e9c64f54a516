package keyring

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// hashPrefix begins every hash that [Hasher.Sum] returns and names its algorithm.
const hashPrefix = "hmac-sha256:"

// Hasher computes the keyed hashes that stand for an app's values in the audit trail: equal values can be recognised,
// the values themselves are not stored. The key is derived from the app's data key and destroyed with it; from then on
// even a short value cannot be found by trying. The zero value returns "" for everything.
type Hasher struct{ key []byte }

// Sum returns the first 128 bits of the HMAC-SHA256 of value, in hex, with hashPrefix. It is "" for the zero [Hasher].
func (h Hasher) Sum(value []byte) string {
	if h.key == nil {
		return ""
	}
	mac := hmac.New(sha256.New, h.key)
	mac.Write(value)
	return hashPrefix + hex.EncodeToString(mac.Sum(nil)[:16])
}

// HashValue returns the hash of the JSON form of a decoded value. Equal documents have equal hashes, because
// json.Marshal sorts the keys of maps.
func (h Hasher) HashValue(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return "" // cannot happen: a decoded document can always be encoded
	}
	return h.Sum(raw)
}

// DeriveHasher returns the hasher of a scope that has no data key, such as the default app. Its key is derived from the
// current master key; hashes made before a rotation of the master key differ from those made after it.
func (k *Keyring) DeriveHasher(scope string) (Hasher, error) {
	keys, err := k.DeriveKeys("hashes of the audit trail of " + scope)
	if err != nil {
		return Hasher{}, fmt.Errorf("derive the key of the hashes of %s: %w", scope, err)
	}
	return Hasher{keys[0]}, nil
}
