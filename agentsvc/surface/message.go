package surface

import (
	"encoding/base64"
	"fmt"
	"net/url"

	"stoa/agentsvc"
)

// MessageFields is what a dialect calls the ids of a message.
type MessageFields struct{ Message, Context, Task string }

// CompleteMessage makes m, whose ids stand as they were sent, a user's message of n parts. It returns what is wrong with an id,
// or with a part and where.
func (names MessageFields) CompleteMessage(m *agentsvc.Message, n int, part func(i int, at string) (agentsvc.Part, error)) error {
	for _, x := range []struct{ field, id string }{
		{names.Message, string(m.ID)}, {names.Context, string(m.Context)}, {names.Task, string(m.Task)},
	} {
		if err := CheckID("message."+x.field, x.id); err != nil {
			return err
		}
	}
	if n == 0 {
		return agentsvc.NewInvalidError("message.parts", "a message needs at least one part")
	}
	if n > MaxParts {
		return agentsvc.NewInvalidError("message.parts", "a message has at most %d parts", MaxParts)
	}
	m.Role, m.Parts = agentsvc.RoleUser, make([]agentsvc.Part, n)
	for i := range m.Parts {
		var err error
		if m.Parts[i], err = part(i, fmt.Sprintf("message.parts[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

// MaxParts bounds a message: each part is kept, shown to the model and told again by itself.
const MaxParts = 1000

// FileFields is what a dialect calls the address and the bytes of a file.
type FileFields struct{ URI, Bytes string }

// CompleteFile adds to f what it consists of: exactly one of an absolute address and bytes in base64. It returns what is wrong
// with the file that stands at a place.
func (names FileFields) CompleteFile(f *agentsvc.File, at, uri, encoded string) error {
	if (uri == "") == (encoded == "") {
		return agentsvc.NewInvalidError(at, "a file has either %s or %s", names.URI, names.Bytes)
	}
	if f.URI = uri; uri != "" {
		return CheckURI(at+"."+names.URI, uri)
	}
	var err error
	if f.Bytes, err = base64.StdEncoding.DecodeString(encoded); err != nil || len(f.Bytes) == 0 {
		return agentsvc.NewInvalidError(at+"."+names.Bytes, "must be the file's bytes in base64")
	}
	return nil
}

// CheckURI refuses the address of a file that is not absolute.
func CheckURI(at, uri string) error {
	if u, err := url.Parse(uri); err != nil || u.Scheme == "" || u.Host == "" {
		return agentsvc.NewInvalidError(at, "must be an absolute URL")
	}
	return nil
}
