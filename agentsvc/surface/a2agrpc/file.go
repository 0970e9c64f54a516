package a2agrpc

import (
	"encoding/base64"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
)

// encodeFiles encodes the bytes of files in a message of version 0.3 in base64, unless they are in base64 already.
// Clients of that version send raw bytes or base64 in the bytes field, and the library expects base64 there.
func encodeFiles(m any) {
	req, ok := m.(*pb03.SendMessageRequest)
	if !ok {
		return
	}
	for _, p := range req.GetRequest().GetParts() {
		if f, ok := p.GetFile().GetFile().(*pb03.FilePart_FileWithBytes); ok && !isBase64(f.FileWithBytes) {
			f.FileWithBytes = base64.StdEncoding.AppendEncode(nil, f.FileWithBytes)
		}
	}
}

// isBase64 reports whether b decodes strictly to at least one byte. Raw bytes that happen to be valid base64 are
// misread; docs/api/grpc.md says so.
func isBase64(b []byte) bool {
	inner, err := base64.StdEncoding.Strict().AppendDecode(nil, b)
	return err == nil && len(inner) > 0
}
