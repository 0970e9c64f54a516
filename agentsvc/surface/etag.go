package surface

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
)

// WriteTagged answers with v under an entity tag of its content, or says that the client has it already (RFC 9110, 13.1.2).
func WriteTagged(w http.ResponseWriter, r *http.Request, v any) error {
	var b bytes.Buffer
	if err := writeJSONLine(&b, v); err != nil {
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
	return writeResponse(w, jsonMediaType, http.StatusOK, b.Bytes())
}
