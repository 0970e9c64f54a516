package guardrail

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
)

// Redaction is what stands in the place of personal data.
type Redaction string

// The redactions. Mask puts * for each letter and digit, Hash a mark that is the same for equal data.
const (
	Mask   Redaction = "mask"
	Remove Redaction = "remove"
	Hash   Redaction = "hash"
)

// removedMark stands in the place of what was taken out of a text.
const removedMark = "[removed]"

// newReplacer returns what replaces personal data. The hash is keyed: without the key a telephone number could be found by
// trying them all.
func (r Redaction) newReplacer(key []byte) func(found, kind string) string {
	switch r {
	case Remove:
		return func(string, string) string { return "" }
	case Hash:
		return func(found, kind string) string {
			mac := hmac.New(sha256.New, key)
			mac.Write([]byte(canonicalForm(found)))
			return "[" + kind + ":" + hex.EncodeToString(mac.Sum(nil)[:6]) + "]"
		}
	}
	return func(found, _ string) string {
		return strings.Map(func(c rune) rune {
			if unicode.In(c, unicode.Letter, unicode.Number, unicode.Mark) {
				return '*'
			}
			return c
		}, found)
	}
}

// canonicalForm returns found in the form that its spellings share.
func canonicalForm(found string) string {
	if strings.Contains(found, "@") {
		return strings.ToLower(found)
	}
	return strings.Map(func(c rune) rune {
		if unicode.IsDigit(c) {
			return c
		}
		return -1
	}, found)
}
