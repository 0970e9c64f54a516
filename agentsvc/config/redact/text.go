package redact

import (
	"bytes"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"stoa/agentsvc/config/document"
)

// MaskText returns the text of a configuration with its secrets masked, see [MaskSecrets], and the same as JSON, both in
// the order of src. Comments stay in the text; what looks like a secret is masked in them as well, and so is each
// masked value that a comment repeats.
func MaskText(src []byte) (text, asJSON []byte, err error) {
	doc, err := document.Decode(src)
	if err != nil {
		return nil, nil, err
	}
	masked := MaskSecrets(doc)
	text = document.Amend(src, masked, newCommentMask(doc, masked))
	return text, document.EncodeJSON(masked, src), nil
}

// mayHaveMask reports whether src may have a mask: written out, with escape sequences, or in another encoding (UTF-16).
// Reading a large text to be sure takes much memory.
func mayHaveMask(src []byte) bool {
	return bytes.Contains(src, []byte(document.Mask)) || bytes.IndexByte(src, '\\') >= 0 || !utf8.Valid(src)
}

// RestoreText returns the text of a configuration, which was changed after MaskText, with its masks replaced by the
// values of old, see [RestoreSecrets]. A comment that MaskText made of a comment of old becomes that one again. A text
// that cannot be decoded is returned as it is: [config.Parse] reports what is wrong with it.
func RestoreText(given, old []byte) []byte {
	if !mayHaveMask(given) {
		return given
	}
	doc, err := document.Decode(given)
	if err != nil {
		return given
	}
	before, err := document.Decode(old)
	if err != nil {
		return given
	}
	restored := RestoreSecrets(doc, before)
	if !bytes.Contains(given, []byte(document.Mask)) && reflect.DeepEqual(restored, doc) {
		return given // it has no mask, neither in a value nor in a comment
	}
	masked, comments := MaskSecrets(before), map[string]string{}
	mask := newCommentMask(before, masked)
	shown := document.Amend(old, masked, func(comment string) string {
		text := mask(comment)
		comments[text] = comment
		return text
	})
	if bytes.Equal(given, shown) {
		return old // nothing was changed, so that also the quotes of the masked values stay
	}
	return document.Amend(given, restored, func(comment string) string {
		if original, ok := comments[comment]; ok {
			return original
		}
		return comment
	})
}

// minRepeatedSecret is the length, in bytes, from which a masked value is looked for in comments. A shorter one is a
// part of ordinary words.
const minRepeatedSecret = 6

// secretSettingForm matches a setting of a secret that was turned into a comment, such as "# api_key: abc", up to its
// value.
var secretSettingForm = regexp.MustCompile(`(?i)([\w-]*(?:api_?key|authorization|secret|password|token)["']?\s*[:=]\s*)(\S.*)`)

// newCommentMask returns the function that masks the secrets in a comment of the document doc.
func newCommentMask(doc, masked map[string]any) func(comment string) string {
	var secrets, pairs []string
	collectMasked(doc, masked, &secrets)
	// The longest first, or the rest of a secret that begins with another one would stay.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, secret := range secrets {
		pairs = append(pairs, secret, document.Mask)
	}
	replacer := strings.NewReplacer(pairs...)
	maskSetting := func(setting string) string {
		m := secretSettingForm.FindStringSubmatch(setting)
		if publicReferenceForm.MatchString(m[2]) {
			return setting
		}
		return m[1] + document.Mask
	}
	return func(comment string) string {
		comment = passwordInURLForm.ReplaceAllString(replacer.Replace(comment), "://"+document.Mask+"@")
		return secretSettingForm.ReplaceAllStringFunc(comment, maskSetting)
	}
}

// collectMasked appends the texts of v that differ in masked.
func collectMasked(v, masked any, secrets *[]string) {
	switch v := v.(type) {
	case map[string]any:
		shown, _ := masked.(map[string]any)
		for key, x := range v {
			collectMasked(x, shown[key], secrets)
		}
	case []any:
		shown, _ := masked.([]any)
		for i, x := range v {
			if i < len(shown) {
				collectMasked(x, shown[i], secrets)
			}
		}
	case string:
		if len(v) >= minRepeatedSecret && !reflect.DeepEqual(v, masked) {
			*secrets = append(*secrets, v)
		}
	}
}
