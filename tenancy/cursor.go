package tenancy

import "encoding/base64"

// maxPageToken bounds a page token that a caller shows.
const maxPageToken = 2048

// EncodeCursor turns a position in a list into an opaque page token. The list is named with its tenant and filters: only
// [Keyring.DecodeCursor] for the same list takes the token back.
func (k *Keyring) EncodeCursor(list, position string) string {
	return base64.RawURLEncoding.EncodeToString(k.masters[0].cursors.Seal(list, []byte(position)))
}

// DecodeCursor returns what [Keyring.EncodeCursor] was given, and "" for no token: the first page. A token that was forged or
// belongs to another list is an [InvalidError].
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
	return "", invalidField("page_token", "is not a token of this list")
}
