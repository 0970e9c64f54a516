package extract

import (
	"bytes"
	"encoding/json"
	"strings"

	"stoa/agentsvc/document"
)

// maxJSONLine is the average length of a line from which on JSON counts as written without line breaks.
const maxJSONLine = 500

// readText reads plain text, and source code, as one section whose lines are those of the file.
func readText(b *builder, f file) error {
	text, err := decodeText(f.data, f.charset)
	if err != nil {
		return err
	}
	b.setPlace(document.Place{Line: 1})
	b.write(normalizeBreaks(text))
	return nil
}

// readJSON reads JSON as text. JSON without line breaks is broken into lines, and has no line numbers then.
func readJSON(b *builder, f file) error {
	if lines := 1 + bytes.Count(f.data, []byte("\n")); len(f.data)/lines > maxJSONLine {
		var broken bytes.Buffer
		// Without indentation, since nested arrays would multiply the size of the text.
		if json.Indent(&broken, bytes.TrimPrefix(f.data, []byte("\uFEFF")), "", "") == nil {
			text, err := decodeText(broken.Bytes(), f.charset)
			if err != nil {
				return err
			}
			b.write(text)
			return nil
		}
	}
	return readText(b, f)
}

// normalizeBreaks returns text with \n as its only line break.
func normalizeBreaks(text string) string {
	if !strings.Contains(text, "\r") {
		return text
	}
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
}
