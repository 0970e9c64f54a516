package decode

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"stoa/agentsvc"
)

// MessageFields are the names that a protocol has for the ids of a message, for the paths in errors.
type MessageFields struct{ Message, Context, Task string }

// CompleteMessage validates the ids of m and sets its role and its n parts, each decoded by part, which gets its index
// and its path. It returns an error with [agentsvc.CodeInvalid] for an id, for no or too many parts, or the error of part.
func (f MessageFields) CompleteMessage(m *agentsvc.Message, n int, part func(i int, at string) (agentsvc.Part, error)) error {
	for _, x := range []struct{ field, id string }{
		{f.Message, string(m.ID)}, {f.Context, string(m.Context)}, {f.Task, string(m.Task)},
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

// MaxParts bounds the parts of a message: each part is stored, sent to the model and reported by itself.
const MaxParts = 1000

// FileFields are the names that a protocol has for the address and the bytes of a file, for the paths in errors.
type FileFields struct{ URI, Bytes string }

// CompleteFile sets the content of f: either uri, an absolute URL, or encoded, base64, exactly one of which must not be
// "". It returns an error with [agentsvc.CodeInvalid] with a path below at.
func (ff FileFields) CompleteFile(f *agentsvc.File, at, uri, encoded string) error {
	if (uri == "") == (encoded == "") {
		return agentsvc.NewInvalidError(at, "a file has either %s or %s", ff.URI, ff.Bytes)
	}
	if f.URI = uri; uri != "" {
		return CheckURI(at+"."+ff.URI, uri)
	}
	var err error
	if f.Bytes, err = base64.StdEncoding.DecodeString(encoded); err != nil || len(f.Bytes) == 0 {
		return agentsvc.NewInvalidError(at+"."+ff.Bytes, "must be the file's bytes in base64")
	}
	return nil
}

// fileSchemes are the schemes of addresses of files: HTTP, and those of cloud storage.
var fileSchemes = []string{"https", "http", "gs", "s3", "az", "abfs", "abfss", "wasb", "wasbs"}

// CheckURI returns an error with the path at for a URI without a host, or with a scheme that is not in fileSchemes.
func CheckURI(at, uri string) error {
	u, err := url.Parse(uri)
	switch {
	case err != nil || u.Scheme == "" || u.Host == "":
		return agentsvc.NewInvalidError(at, "must be an absolute URL")
	case !slices.Contains(fileSchemes, u.Scheme):
		return agentsvc.NewInvalidError(at, "has the scheme %.40q, must be one of %s", u.Scheme, strings.Join(fileSchemes, ", "))
	}
	return nil
}
