package extract

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
)

// maxForeignShare is the share of bytes of a text that may be outside ASCII when its encoding is not known: above it
// the text is of an encoding that would be read wrongly, not of one with some accents.
const maxForeignShare = 0.3

// decodeText returns the text of data as UTF-8: by its byte order mark, else by the declared charset, else as UTF-8.
// Text that is not UTF-8 and has no sequence of it is read as Windows-1252, of which Latin-1 is a part; text with single
// wrong bytes keeps the rest, with U+FFFD in their place.
func decodeText(data []byte, declared string) (string, error) {
	var from encoding.Encoding
	switch {
	case len(data) >= 2 && (data[0] == 0xFF && data[1] == 0xFE || data[0] == 0xFE && data[1] == 0xFF):
		from = unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM)
	case utf8.Valid(data):
		return strings.TrimPrefix(string(data), "\uFEFF"), nil
	case declared != "":
		from, _ = charset.Lookup(declared)
	}
	if from == nil || from == encoding.Nop {
		sequences, foreign := countForeign(data)
		switch {
		case float64(foreign) > maxForeignShare*float64(len(data)):
			return "", newProblem(Unsupported, "the text is not UTF-8: save it as UTF-8")
		case sequences > 0:
			return strings.ToValidUTF8(strings.TrimPrefix(string(data), "\uFEFF"), "\uFFFD"), nil
		}
		from = charmap.Windows1252
	}
	text, err := from.NewDecoder().Bytes(data)
	if err != nil {
		return "", newProblem(Unsupported, "the text is not in the encoding that it declares: save it as UTF-8")
	}
	return strings.ToValidUTF8(string(text), "\uFFFD"), nil
}

// countForeign returns how many characters of several bytes data has, and how many bytes are neither ASCII nor part of
// one.
func countForeign(data []byte) (sequences, foreign int) {
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		if n > 1 {
			sequences++
		} else if r == utf8.RuneError {
			foreign++
		}
		data = data[n:]
	}
	return sequences, foreign
}

// cleanText returns text as valid UTF-8 with \n as line break and without control characters, which databases refuse.
// It keeps the number of lines.
func cleanText(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if !strings.ContainsFunc(text, isUnwanted) {
		return text
	}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r', r == '\u2028', r == '\u2029':
			return '\n'
		case r == '\f', r == '\v', r == '\u00A0':
			return ' '
		case isUnwanted(r):
			return -1
		}
		return r
	}, text)
}

// isUnwanted reports whether cleanText removes or replaces r.
func isUnwanted(r rune) bool {
	return r < ' ' && r != '\n' && r != '\t' || r >= 0x7F && r <= 0xA0 || r == '\u00AD' || r == '\uFEFF' || r == '\u2028' || r == '\u2029'
}

// cleanLine returns text as one line of at most most bytes.
func cleanLine(text string, most int) string {
	if len(text) > 8*most {
		text = text[:8*most]
	}
	text = strings.Join(strings.Fields(cleanText(text)), " ")
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return strings.TrimSpace(text[:most])
}
