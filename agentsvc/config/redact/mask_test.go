package redact

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/config/document"
)

func decodeYAML(t *testing.T, src string) map[string]any {
	t.Helper()
	doc, err := document.Decode([]byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestMaskAndRestore(t *testing.T) {
	t.Parallel()
	const src = `
name: token
llms:
  secret: {provider: openai, api_key: sk-canary, base_url: "https://user:canary@models.example.com"}
  reference: {api_key: "${KEY}"}
  fallback: {api_key: "${KEY:sk-canary}"}
  mixed: {api_key: "sk-canary${KEY}"}
  empty: {api_key: ""}
agents:
  headers:
    instruction: My password is not here, write to a@b.example or https://x.example/?a:b@c
    headers: {Authorization: Bearer canary, X-Other: "Bearer ${TOKEN}"}
    credentials: {type: bearer, token: canary}
    trigger: {type: webhook, secret: canary}
    notifications:
      - {id: one, url: https://x, headers: {X-Key: canary}}
      - {id: two, url: https://x, headers: {X-Key: canary 2}}
tools:
  token: {command: npx, env: {GITHUB_TOKEN: canary, PORT: 1, DEBUG: true}}
  function:
    parameters: {type: object, properties: {token: {type: string}}, api_key: canary, headers: {X: canary}}
databases: {db: {username: me, password: canary}}
unknown: {password: canary, list: [{secret: canary}]}
`
	const want = `
name: token
llms:
  secret: {provider: openai, api_key: "********", base_url: "https://********@models.example.com"}
  reference: {api_key: "${KEY}"}
  fallback: {api_key: "********"}
  mixed: {api_key: "********"}
  empty: {api_key: ""}
agents:
  headers:
    instruction: My password is not here, write to a@b.example or https://x.example/?a:b@c
    headers: {Authorization: "********", X-Other: "Bearer ${TOKEN}"}
    credentials: {type: bearer, token: "********"}
    trigger: {type: webhook, secret: "********"}
    notifications:
      - {id: one, url: https://x, headers: {X-Key: "********"}}
      - {id: two, url: https://x, headers: {X-Key: "********"}}
tools:
  token: {command: npx, env: {GITHUB_TOKEN: "********", PORT: "********", DEBUG: true}}
  function:
    parameters: {type: object, properties: {token: {type: string}}, api_key: "********", headers: {X: "********"}}
databases: {db: {username: me, password: "********"}}
unknown: {password: "********", list: [{secret: "********"}]}
`
	doc := decodeYAML(t, src)
	masked := MaskSecrets(doc)
	if diff := cmp.Diff(decodeYAML(t, want), masked); diff != "" {
		t.Errorf("mask: -want +got:\n%s", diff)
	}
	if shown, _ := json.Marshal(masked); strings.Contains(string(shown), "canary") {
		t.Errorf("a secret shows: %s", shown)
	}
	if diff := cmp.Diff(decodeYAML(t, src), doc); diff != "" {
		t.Errorf("Mask changed its argument: %s", diff)
	}
	if diff := cmp.Diff(doc, RestoreSecrets(masked, doc)); diff != "" {
		t.Errorf("restore: -want +got:\n%s", diff)
	}
}

func TestRestoreFollowsNames(t *testing.T) {
	t.Parallel()
	old := decodeYAML(t, "notifications: [{id: one, secret: s1}, {id: two, secret: s2}]\nlist: [a, b]\nllms: {a: {api_key: k, model: m}}")
	doc := decodeYAML(t, "notifications: [{id: two, secret: '********'}, {id: three, secret: '********'}]\nlist: ['********', b]\n"+
		"llms: {a: {api_key: new}, b: {api_key: '********'}}")
	want := decodeYAML(t, "notifications: [{id: two, secret: s2}, {id: three, secret: '********'}]\nlist: [a, b]\n"+
		"llms: {a: {api_key: new}, b: {api_key: '********'}}")
	if diff := cmp.Diff(want, RestoreSecrets(doc, old)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestSecretsAreTagged checks that every text field with the name of a secret has the tag secret.
func TestSecretsAreTagged(t *testing.T) {
	t.Parallel()
	visitStructs(func(typ reflect.Type) {
		for _, f := range document.FieldsOf(typ) {
			field := typ.Field(f.Index)
			text := field.Type.Kind() == reflect.String || field.Type == reflect.TypeFor[map[string]string]()
			for _, word := range append(secretNames, secretMappings...) {
				if text && f.Name == word && !f.Secret {
					t.Errorf("%s.%s is not tagged as secret", typ.Name(), field.Name)
				}
			}
		}
	})
}
