package tenancy

import "encoding/base64"

// maxToken bounds a page token that a caller shows.
const maxToken = 2048

// Cursor turns a position in a list into an opaque page token. The list is named with its tenant and filters: only
// [Keyring.Position] for the same list takes the token back.
func (k *Keyring) Cursor(list, position string) string {
	return base64.RawURLEncoding.EncodeToString(k.masters[0].cursors.Seal(list, []byte(position)))
}

// Position returns what [Keyring.Cursor] was given, and "" for no token: the first page. A token that was forged or
// belongs to another list is an [InvalidError].
func (k *Keyring) Position(list, token string) (string, error) {
	if token == "" {
		return "", nil
	}
	if sealed, err := base64.RawURLEncoding.DecodeString(token); err == nil && len(token) <= maxToken {
		for _, m := range k.masters {
			if position, err := m.cursors.Open(list, sealed); err == nil {
				return string(position), nil
			}
		}
	}
	return "", invalid("page_token", "is not a token of this list")
}
