package keyring

import (
	"encoding/base64"
	"errors"
)

// maxPageToken bounds a page token from a caller, in bytes, before it is decrypted.
const maxPageToken = 2048

// ErrInvalidCursor reports that a page token was forged, damaged or issued for another list.
var ErrInvalidCursor = errors.New("is not a token of this list")

// EncodeCursor returns an opaque page token for a position in a list. list identifies the list with its tenant and
// filters; the token is encrypted and bound to list, so that [Keyring.DecodeCursor] accepts it for the same list only.
func (k *Keyring) EncodeCursor(list, position string) string {
	return base64.RawURLEncoding.EncodeToString(k.masters[0].cursors.Seal(list, []byte(position)))
}

// DecodeCursor returns the position that was passed to [Keyring.EncodeCursor], and "" for an empty token, which stands
// for the first page. It tries every master key, so that tokens stay valid during a rotation. A forged token, or one of
// another list, is [ErrInvalidCursor].
func (k *Keyring) DecodeCursor(list, token string) (string, error) {
	if token == "" {
		return "", nil
	}
	if sealed, err := base64.RawURLEncoding.DecodeString(token); err == nil && len(token) <= maxPageToken {
		for _, m := range k.masters {
			if position, err := m.cursors.Open(list, sealed); err == nil {
				return string(position), nil
			}
		}
	}
	return "", ErrInvalidCursor
}
