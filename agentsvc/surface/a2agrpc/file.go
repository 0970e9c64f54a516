package a2agrpc

import (
	"encoding/base64"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
)

// encodeFiles encodes the bytes of files in a message that came over version 0.3 where they are not in base64 already. Clients of that
// version send both, and the protocol's library reads base64 alone.
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

// isBase64 reports whether b is something in base64.
func isBase64(b []byte) bool {
	inner, err := base64.StdEncoding.Strict().AppendDecode(nil, b)
	return err == nil && len(inner) > 0
}
