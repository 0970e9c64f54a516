// Package keyring encrypts what the platform stores: configurations, secrets, page tokens and the heads of the audit
// trail. A [Keyring] holds the master keys, a [FieldCipher] encrypts the values of one app, and a [Hasher] computes the
// keyed hashes by which the audit trail represents values that it does not store.
package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// errCannotOpen reports that a ciphertext is damaged or belongs to another scope or field. The cases are not
// distinguished where decryption cannot distinguish them.
var errCannotOpen = errors.New("the sealed value cannot be opened with the master keys at hand")

// ErrKeyMissing reports that a ciphertext needs a master key that this process does not have.
var ErrKeyMissing = errors.New("this process lacks the master key with the id")

const (
	// The sizes of AES-256-GCM keys, nonces and tags, in bytes.
	keySize = 32
	// keyIDSize is the size of the master key's id that precedes a wrapped data key.
	keyIDSize = 8
	nonceSize = 12
	tagSize   = 16
	// wrappedKeySize is the size of a wrapped data key: id of the master key, nonce, ciphertext, tag.
	wrappedKeySize = keyIDSize + nonceSize + keySize + tagSize
)

// Keyring encrypts values at rest with two levels of keys, all by AES-256-GCM: a master key, which is configured, wraps
// data keys, which are stored next to the values that they encrypt. Rotating a master key therefore rewrites only data
// keys. The scope of a data key (an app's id, or a name of the platform's own) and the field of a value are additional
// authenticated data, so that a ciphertext cannot be moved to another app or field. It is immutable and safe for
// concurrent use.
type Keyring struct {
	// masters are the master keys. The first one encrypts; all of them decrypt.
	masters []master
}

// master is a master key. id is derived from the key, so that a ciphertext identifies its key without revealing it;
// wrap encrypts data keys and cursors page tokens.
type master struct {
	id      string
	raw     []byte
	wrap    cipher.AEAD
	cursors *FieldCipher
}

// New returns a keyring over master keys of 32 bytes each. The first one encrypts, all of them decrypt: to rotate, put
// the new key second in every process, then first, and keep the former one until the background work of package
// tenancy has wrapped every data key anew.
func New(masters ...[]byte) (*Keyring, error) {
	if len(masters) == 0 {
		return nil, errors.New("no master key")
	}
	k := &Keyring{}
	for i, raw := range masters {
		if len(raw) != keySize {
			return nil, fmt.Errorf("master key %d has %d bytes, needs %d", i+1, len(raw), keySize)
		}
		m, err := newMaster(raw)
		if err != nil {
			return nil, err
		}
		k.masters = append(k.masters, m)
	}
	return k, nil
}

// newMaster derives the id of a master key and the key of page tokens with HKDF (RFC 5869). The info strings are part
// of the stored format and must not change.
func newMaster(raw []byte) (master, error) {
	id, err := hkdf.Key(sha256.New, raw, nil, "stoa master key id", keyIDSize)
	if err != nil {
		return master{}, err
	}
	derived, err := hkdf.Key(sha256.New, raw, nil, "stoa cursors", keySize)
	if err != nil {
		return master{}, err
	}
	wrap, err := newAEAD(raw)
	if err != nil {
		return master{}, err
	}
	cursors, err := newAEAD(derived)
	if err != nil {
		return master{}, err
	}
	return master{id: string(id), raw: slices.Clone(raw), wrap: wrap, cursors: &FieldCipher{scope: "cursor", aead: cursors}}, nil
}

// newAEAD returns AES-256-GCM with key, which has keySize bytes.
func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// CurrentKeyID returns the id of the master key that encrypts, in hex, as it is stored in columns named master_key.
func (k *Keyring) CurrentKeyID() string { return hex.EncodeToString([]byte(k.masters[0].id)) }

// FormerKeyIDs returns the ids of the other master keys, in hex. Values under them can still be decrypted.
func (k *Keyring) FormerKeyIDs() []string {
	var ids []string
	for _, m := range k.masters[1:] {
		ids = append(ids, hex.EncodeToString([]byte(m.id)))
	}
	return ids
}

// HasKey reports whether a master key has the id, which is in hex as in columns named master_key.
func (k *Keyring) HasKey(id string) bool {
	return id == k.CurrentKeyID() || slices.Contains(k.FormerKeyIDs(), id)
}

// DeriveKeys returns a key of 32 bytes for a purpose from each master key, in their order. Every process with the
// master keys derives the same ones; a derived key reveals neither the master key nor the keys of other purposes.
func (k *Keyring) DeriveKeys(purpose string) ([][]byte, error) {
	keys := make([][]byte, len(k.masters))
	for i, m := range k.masters {
		var err error
		if keys[i], err = hkdf.Key(sha256.New, m.raw, nil, "stoa derived key: "+purpose, keySize); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// NewDataKey returns a new random data key for scope, wrapped by the current master key.
func (k *Keyring) NewDataKey(scope string) []byte {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return k.wrapKey(scope, key)
}

// RewrapDataKey returns a wrapped data key of scope wrapped by the current master key. The data key itself stays the
// same.
func (k *Keyring) RewrapDataKey(scope string, wrapped []byte) ([]byte, error) {
	key, err := k.unwrapKey(scope, wrapped)
	if err != nil {
		return nil, err
	}
	return k.wrapKey(scope, key), nil
}

// AdoptDataKey returns a wrapped data key of scope that from can unwrap, wrapped by the current master key of k. The
// master keys of k itself are not tried. It moves data keys between installations.
func (k *Keyring) AdoptDataKey(from *Keyring, scope string, wrapped []byte) ([]byte, error) {
	key, err := from.unwrapKey(scope, wrapped)
	if err != nil {
		return nil, err
	}
	return k.wrapKey(scope, key), nil
}

// AdoptValue is [Keyring.AdoptDataKey] for the data key of a value that [Keyring.SealValue] of from encrypted.
func (k *Keyring) AdoptValue(from *Keyring, scope string, sealed []byte) ([]byte, error) {
	if len(sealed) < wrappedKeySize {
		return nil, errCannotOpen
	}
	wrapped, err := k.AdoptDataKey(from, scope, sealed[:wrappedKeySize])
	return append(wrapped, sealed[wrappedKeySize:]...), err
}

// wrapKey encrypts a data key with the current master key, preceded by that key's id.
func (k *Keyring) wrapKey(scope string, key []byte) []byte {
	m := k.masters[0]
	return append([]byte(m.id), sealField(m.wrap, key, "key", scope)...)
}

// unwrapKey decrypts a wrapped data key with the master key that its first bytes name.
func (k *Keyring) unwrapKey(scope string, wrapped []byte) ([]byte, error) {
	if len(wrapped) != wrappedKeySize {
		return nil, errCannotOpen
	}
	for _, m := range k.masters {
		if m.id == string(wrapped[:keyIDSize]) {
			return openField(m.wrap, wrapped[keyIDSize:], "key", scope)
		}
	}
	return nil, fmt.Errorf("%w %x", ErrKeyMissing, wrapped[:keyIDSize])
}

// NewFieldCipher returns the cipher for values under a wrapped data key of scope.
func (k *Keyring) NewFieldCipher(scope string, wrapped []byte) (*FieldCipher, error) {
	key, err := k.unwrapKey(scope, wrapped)
	if err != nil {
		return nil, fmt.Errorf("data key of %s: %w", scope, err)
	}
	aead, err := newAEAD(key)
	if err != nil {
		return nil, err
	}
	hashes, err := hkdf.Key(sha256.New, key, nil, "stoa hashes of the audit trail", keySize)
	if err != nil {
		return nil, err
	}
	return &FieldCipher{scope, aead, Hasher{hashes}}, nil
}

// SealValue encrypts one value with a data key of its own, which is prepended to the ciphertext. It is for values
// without an owner that has a data key.
func (k *Keyring) SealValue(scope, field string, plain []byte) ([]byte, error) {
	wrapped := k.NewDataKey(scope)
	fieldCipher, err := k.NewFieldCipher(scope, wrapped)
	if err != nil {
		return nil, err
	}
	return append(wrapped, fieldCipher.Seal(field, plain)...), nil
}

// RewrapValue returns a value that [Keyring.SealValue] encrypted for scope, with its data key wrapped by the current
// master key.
func (k *Keyring) RewrapValue(scope string, sealed []byte) ([]byte, error) {
	if len(sealed) < wrappedKeySize {
		return nil, errCannotOpen
	}
	wrapped, err := k.RewrapDataKey(scope, sealed[:wrappedKeySize])
	return append(wrapped, sealed[wrappedKeySize:]...), err
}

// OpenValue decrypts a value that [Keyring.SealValue] encrypted for the same scope and field.
func (k *Keyring) OpenValue(scope, field string, sealed []byte) ([]byte, error) {
	if len(sealed) < wrappedKeySize {
		return nil, errCannotOpen
	}
	fieldCipher, err := k.NewFieldCipher(scope, sealed[:wrappedKeySize])
	if err != nil {
		return nil, err
	}
	return fieldCipher.Open(field, sealed[wrappedKeySize:])
}

// FieldCipher encrypts and decrypts the values of one scope. It is safe for concurrent use.
type FieldCipher struct {
	scope string
	aead  cipher.AEAD
	// hasher has a key derived from the data key; see [Hasher].
	hasher Hasher
}

// Hasher returns the hasher of the scope, whose key is derived from the data key.
func (c *FieldCipher) Hasher() Hasher { return c.hasher }

// Seal encrypts the value of a field: a random nonce followed by the ciphertext with its tag.
func (c *FieldCipher) Seal(field string, plain []byte) []byte {
	return sealField(c.aead, plain, field, c.scope)
}

// Open decrypts a value that [FieldCipher.Seal] encrypted for the same field.
func (c *FieldCipher) Open(field string, sealed []byte) ([]byte, error) {
	return openField(c.aead, sealed, field, c.scope)
}

// sealField returns the nonce followed by the ciphertext. Nonces are random: 96 bits are enough for the number of
// values under one data key (NIST SP 800-38D, section 8.3).
func sealField(aead cipher.AEAD, plain []byte, field, scope string) []byte {
	nonce := make([]byte, nonceSize, nonceSize+len(plain)+tagSize)
	_, _ = rand.Read(nonce) // never fails
	return aead.Seal(nonce, nonce, plain, additionalData(field, scope))
}

func openField(aead cipher.AEAD, sealed []byte, field, scope string) ([]byte, error) {
	if len(sealed) < nonceSize+tagSize {
		return nil, errCannotOpen
	}
	plain, err := aead.Open(nil, sealed[:nonceSize], sealed[nonceSize:], additionalData(field, scope))
	if err != nil {
		return nil, errCannotOpen
	}
	return plain, nil
}

// additionalData returns the additional authenticated data, which binds a ciphertext to its scope and field.
func additionalData(field, scope string) []byte { return []byte("stoa\x00" + scope + "\x00" + field) }
