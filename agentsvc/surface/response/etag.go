package response

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"stoa/agentsvc/surface/encode"
)

// WriteTagged writes v as JSON with an entity tag of its content, or 304 if the client has the same (RFC 9110, 13.1.2).
// The tag is the first half of the content's SHA-256 hash.
func WriteTagged(w http.ResponseWriter, r *http.Request, v any) error {
	var b bytes.Buffer
	if err := encode.AppendJSONLine(&b, v); err != nil {
		return err
	}
	sum := sha256.Sum256(b.Bytes())
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	w.Header()["Etag"] = []string{tag}
	for has := range strings.SplitSeq(strings.Join(r.Header.Values("If-None-Match"), ","), ",") {
		if has = strings.TrimPrefix(strings.TrimSpace(has), "W/"); has == tag || has == "*" {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	return writeBody(w, jsonMediaType, http.StatusOK, b.Bytes())
}
