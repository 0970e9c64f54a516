package tenancy

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

// errCannotOpen says that a ciphertext is damaged, belongs elsewhere, or needs a master key that is not there.
var errCannotOpen = errors.New("the sealed value cannot be opened with the master keys at hand")

const (
	keySize   = 32
	keyIDSize = 8 // bytes of the master key's id in front of what it wraps
	nonceSize = 12
	tagSize   = 16
	// wrappedKeySize is the size of a data key wrapped by a master key.
	wrappedKeySize = keyIDSize + nonceSize + keySize + tagSize
)

// Keyring encrypts what is secret at rest. A master key wraps data keys, a data key seals values, all by AES-256-GCM;
// who owns a key (its scope: an app's id, or a name of the platform's own) and which field a value belongs to are
// bound to the ciphertext, so that none can be moved to another place.
type Keyring struct {
	masters []master
}

type master struct {
	id      string
	raw     []byte
	wrap    cipher.AEAD
	cursors *FieldCipher
}

// NewKeyring returns a keyring over master keys of 32 bytes. The first seals, all of them open: to rotate, put the
// new one in front and keep the old one until [Service.Run] has wrapped every data key anew.
func NewKeyring(masters ...[]byte) (*Keyring, error) {
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

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// CurrentKeyID names the master key that seals.
func (k *Keyring) CurrentKeyID() string { return hex.EncodeToString([]byte(k.masters[0].id)) }

// FormerKeyIDs names the other master keys, whose values can still be opened.
func (k *Keyring) FormerKeyIDs() []string {
	var ids []string
	for _, m := range k.masters[1:] {
		ids = append(ids, hex.EncodeToString([]byte(m.id)))
	}
	return ids
}

// DeriveKeys returns a key of 32 bytes for a purpose from each master key, in their order. Whoever has the master keys has it, and
// nobody learns a master key, or the key of another purpose, from it.
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

// NewDataKey makes a data key for scope and returns it wrapped.
func (k *Keyring) NewDataKey(scope string) []byte {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return k.wrapKey(scope, key)
}

// RewrapDataKey returns a data key of scope wrapped by the current master key.
func (k *Keyring) RewrapDataKey(scope string, wrapped []byte) ([]byte, error) {
	key, err := k.unwrapKey(scope, wrapped)
	if err != nil {
		return nil, err
	}
	return k.wrapKey(scope, key), nil
}

func (k *Keyring) wrapKey(scope string, key []byte) []byte {
	m := k.masters[0]
	return append([]byte(m.id), sealField(m.wrap, key, "key", scope)...)
}

func (k *Keyring) unwrapKey(scope string, wrapped []byte) ([]byte, error) {
	if len(wrapped) != wrappedKeySize {
		return nil, errCannotOpen
	}
	for _, m := range k.masters {
		if m.id == string(wrapped[:keyIDSize]) {
			return openField(m.wrap, wrapped[keyIDSize:], "key", scope)
		}
	}
	return nil, fmt.Errorf("%w: master key %x is missing", errCannotOpen, wrapped[:keyIDSize])
}

// NewFieldCipher returns what seals and opens values under a wrapped data key of scope.
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

// SealValue encrypts one value under a data key of its own, which travels with it: for values that have no common owner.
func (k *Keyring) SealValue(scope, field string, plain []byte) ([]byte, error) {
	wrapped := k.NewDataKey(scope)
	fieldCipher, err := k.NewFieldCipher(scope, wrapped)
	if err != nil {
		return nil, err
	}
	return append(wrapped, fieldCipher.Seal(field, plain)...), nil
}

// RewrapValue returns what [Keyring.Seal] made for scope as the current master key would have made it.
func (k *Keyring) RewrapValue(scope string, sealed []byte) ([]byte, error) {
	if len(sealed) < wrappedKeySize {
		return nil, errCannotOpen
	}
	wrapped, err := k.RewrapDataKey(scope, sealed[:wrappedKeySize])
	return append(wrapped, sealed[wrappedKeySize:]...), err
}

// OpenValue decrypts what [Keyring.Seal] made for the same scope and field.
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

// FieldCipher seals and opens the values of one owner.
type FieldCipher struct {
	scope  string
	aead   cipher.AEAD
	hasher Hasher
}

// Seal encrypts the value of a field.
func (b *FieldCipher) Seal(field string, plain []byte) []byte {
	return sealField(b.aead, plain, field, b.scope)
}

// Open decrypts what [Box.Seal] made for the same field.
func (b *FieldCipher) Open(field string, sealed []byte) ([]byte, error) {
	return openField(b.aead, sealed, field, b.scope)
}

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

// additionalData is the additional data: where the value belongs.
func additionalData(field, scope string) []byte { return []byte("stoa\x00" + scope + "\x00" + field) }
