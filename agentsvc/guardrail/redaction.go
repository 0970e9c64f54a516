package guardrail

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strings"
	"sync"
	"unicode"
)

// Redaction is what replaces personal data in a text.
type Redaction string

// The redactions. Mask replaces each letter and digit by *; Remove deletes the data; Hash puts a keyed hash, equal for
// equal data, in its place.
const (
	Mask   Redaction = "mask"
	Remove Redaction = "remove"
	Hash   Redaction = "hash"
)

// removedMark replaces text that [Content] or [Injection] removes.
const removedMark = "[removed]"

// newReplacer returns the function that returns the replacement of found data. The hash is an HMAC: without a secret
// key, a telephone number could be found by trying all of them. It is cut to 6 bytes, which identify equal data within
// a conversation.
func (r Redaction) newReplacer(key []byte) func(found, kind string) string {
	switch r {
	case Remove:
		return func(string, string) string { return "" }
	case Hash:
		macs := sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}
		return func(found, kind string) string {
			mac := macs.Get().(hash.Hash)
			defer macs.Put(mac)
			mac.Reset()
			mac.Write([]byte(canonicalForm(found)))
			var sum [sha256.Size]byte
			return "[" + kind + ":" + hex.EncodeToString(mac.Sum(sum[:0])[:6]) + "]"
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

// canonicalForm returns found in the form that all its spellings share, so that they have the same hash: an address in
// lower case, a number without separators.
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
