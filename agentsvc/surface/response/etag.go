package response

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
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
	if WriteNotModified(w, r, hex.EncodeToString(sum[:16])) {
		return nil
	}
	return writeBody(w, jsonMediaType, http.StatusOK, b.Bytes())
}

// WriteNotModified sets the ETag of a response. If the client has what tag identifies, it answers 304 and reports true.
func WriteNotModified(w http.ResponseWriter, r *http.Request, tag string) bool {
	tag = strconv.Quote(tag)
	w.Header()["Etag"] = []string{tag}
	for has := range strings.SplitSeq(strings.Join(r.Header.Values("If-None-Match"), ","), ",") {
		if has = strings.TrimPrefix(strings.TrimSpace(has), "W/"); has == tag || has == "*" {
			w.WriteHeader(http.StatusNotModified)
			return true
		}
	}
	return false
}
