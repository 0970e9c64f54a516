package redact

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
)

// commented is a configuration whose order and comments matter to its author.
const commented = `# The configuration of acme.
llms:
  zeta: {provider: openai, api_key: sk-canary-1, base_url: "https://models.example.com"} # formerly sk-canary-1
  alpha:
    provider: openai
    # api_key: canary-of-old
    # api_key: ${KEY}
    api_key: 'sk-canary-2'

agents:
  second: {llm: zeta} # the default
  first:  {llm: alpha}
`

const commentedMasked = `# The configuration of acme.
llms:
  zeta: {provider: openai, api_key: "********", base_url: "https://models.example.com"} # formerly ********
  alpha:
    provider: openai
    # api_key: ********
    # api_key: ${KEY}
    api_key: "********"

agents:
  second: {llm: zeta} # the default
  first:  {llm: alpha}
`

func maskText(t *testing.T, src string) (text, asJSON string) {
	t.Helper()
	masked, encoded, err := MaskText([]byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return string(masked), string(encoded)
}

func TestMaskText(t *testing.T) {
	t.Parallel()
	text, asJSON := maskText(t, commented)
	if diff := cmp.Diff(commentedMasked, text); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	const want = `{"llms":{"zeta":{"provider":"openai","api_key":"********","base_url":"https://models.example.com"},` +
		`"alpha":{"provider":"openai","api_key":"********"}},"agents":{"second":{"llm":"zeta"},"first":{"llm":"alpha"}}}`
	if asJSON != want {
		t.Errorf("got %s, want %s", asJSON, want)
	}
	const plain = "agents: {b: {}, a: {}} # no secret\n"
	if text, _ := maskText(t, plain); text != plain {
		t.Errorf("a text without secrets became %s", text)
	}
	if _, _, err := MaskText([]byte("a: [")); err == nil {
		t.Error("a text that cannot be read is masked")
	}
}

func TestRestoreText(t *testing.T) {
	t.Parallel()
	replace := func(from, to string) (given, want string) {
		return strings.Replace(commentedMasked, from, to, 1), strings.Replace(commented, from, to, 1)
	}
	renamed, renamedWant := replace("first: ", "third: ")
	renamedWant = strings.Replace(strings.Replace(renamedWant, "api_key: sk-canary-1,", `api_key: "sk-canary-1",`, 1), "'sk-canary-2'", `"sk-canary-2"`, 1)
	for name, tt := range map[string]struct{ given, want string }{
		"as shown":          {commentedMasked, commented},
		"changed elsewhere": {renamed, renamedWant},
		"without a mask":    {"agents: {a: {}} # new\n", "agents: {a: {}} # new\n"},
		"cannot be read":    {"agents: [", "agents: ["},
		"an escaped mask": {
			`{"llms": {"zeta": {"provider": "openai", "api_key": "\u002a*******", "base_url": "https://models.example.com"}}}`,
			`{"llms": {"zeta": {"provider": "openai", "api_key": "sk-canary-1", "base_url": "https://models.example.com"}}}`,
		},
		"the secret would go to another server": {
			`{"llms": {"zeta": {"provider": "openai", "api_key": "********", "base_url": "https://other.example.com"}}}`,
			`{"llms": {"zeta": {"provider": "openai", "api_key": "********", "base_url": "https://other.example.com"}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, string(RestoreText([]byte(tt.given), []byte(commented)))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestRestoreUTF16 restores masks of a text in which the bytes of a mask do not follow each other.
func TestRestoreUTF16(t *testing.T) {
	t.Parallel()
	given := []byte{0xff, 0xfe} // little-endian
	for _, u := range utf16.Encode([]rune(commentedMasked)) {
		given = binary.LittleEndian.AppendUint16(given, u)
	}
	if restored := string(RestoreText(given, []byte(commented))); !strings.Contains(restored, "sk-canary-1") || !strings.Contains(restored, "sk-canary-2") {
		t.Errorf("restored: %q", restored)
	}
}
