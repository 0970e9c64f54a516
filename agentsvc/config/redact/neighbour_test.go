package redact

import (
	"reflect"
	"strings"
	"testing"

	"stoa/agentsvc/config"
	"stoa/agentsvc/config/document"
)

// TestMaskedSecretAndItsNeighbours checks that a masked secret is restored only if the other entries of its mapping
// are unchanged: another variable of a program's environment, such as LD_PRELOAD, decides where the secret goes as
// much as the program does.
func TestMaskedSecretAndItsNeighbours(t *testing.T) {
	t.Parallel()
	const (
		program = `tools: {t: {command: one, args: [a], env: {KEY: canary, OTHER: "${OTHER}", PLAIN: plain}}}`
		listed  = `tools: {t: {command: one, args: ["https://user:canary@one.example", b]}}`
		server  = `tools: {t: {url: "https://one.example", headers: {X-Key: canary, X-Other: "${OTHER}"}}}`
		remote  = `agents: {a: {type: remote, url: "https://one.example", headers: {X-Other: "${OTHER}"}, credentials: {token: canary}}}`
	)
	for name, tt := range map[string]struct {
		old, given string
		kept       bool
	}{
		"as it is shown":        {program, `tools: {t: {command: one, args: [a], env: {KEY: "********", OTHER: "${OTHER}", PLAIN: "********"}}}`, true},
		"a neighbour as it is":  {program, `tools: {t: {command: one, args: [a], env: {KEY: "********", OTHER: "${OTHER}", PLAIN: plain}}}`, true},
		"another field":         {program, `tools: {t: {command: one, args: [a], description: x, env: {KEY: "********", OTHER: "${OTHER}", PLAIN: "********"}}}`, true},
		"a neighbour more":      {program, `tools: {t: {command: one, args: [a], env: {KEY: "********", OTHER: "${OTHER}", PLAIN: "********", LD_PRELOAD: /tmp/x.so}}}`, false},
		"a neighbour less":      {program, `tools: {t: {command: one, args: [a], env: {KEY: "********", PLAIN: "********"}}}`, false},
		"a neighbour changed":   {program, `tools: {t: {command: one, args: [a], env: {KEY: "********", OTHER: "${OTHER}", PLAIN: other}}}`, false},
		"a variable changed":    {program, `tools: {t: {command: one, args: [a], env: {KEY: "********", OTHER: "${ELSE}", PLAIN: "********"}}}`, false},
		"a secret renamed":      {program, `tools: {t: {command: one, args: [a], env: {key: "********", OTHER: "${OTHER}", PLAIN: "********"}}}`, false},
		"arguments less":        {program, `tools: {t: {command: one, env: {KEY: "********", OTHER: "${OTHER}", PLAIN: "********"}}}`, false},
		"an argument as it is":  {listed, `tools: {t: {command: one, args: ["https://********@one.example", b]}}`, true},
		"an argument changed":   {listed, `tools: {t: {command: one, args: ["https://********@one.example", c]}}`, false},
		"an argument's program": {listed, `tools: {t: {command: two, args: ["https://********@one.example", b]}}`, false},
		"an environment more":   {listed, `tools: {t: {command: one, args: ["https://********@one.example", b], env: {HTTPS_PROXY: two.example}}}`, false},
		"a header as it is":     {server, `tools: {t: {url: "https://one.example", headers: {X-Key: "********", X-Other: "${OTHER}"}}}`, true},
		"a header more":         {server, `tools: {t: {url: "https://one.example", headers: {X-Key: "********", X-Other: "${OTHER}", Host: two.example}}}`, false},
		"a header changed":      {server, `tools: {t: {url: "https://one.example", headers: {X-Key: "********", X-Other: x}}}`, false},
		"beside credentials":    {remote, `agents: {a: {type: remote, url: "https://one.example", headers: {X-Other: "${OTHER}"}, credentials: {token: "********"}}}`, true},
		"header by credentials": {remote, `agents: {a: {type: remote, url: "https://one.example", headers: {X-Other: x}, credentials: {token: "********"}}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := string(marshalJSON(t, RestoreSecrets(decodeYAML(t, tt.given), decodeYAML(t, tt.old))))
			if preserved := strings.Contains(text, "canary"); preserved != tt.kept {
				t.Errorf("the secret is kept: %v, in %s", preserved, text)
			}
			_, err := config.Parse([]byte(text), config.Options{Lookup: func(string) (string, bool) { return "x", true }})
			if reported := err != nil && strings.Contains(err.Error(), "stands beside it"); reported == tt.kept {
				t.Errorf("the secret is to be given again: %v (%v)", reported, err)
			}
		})
	}
}

// TestMappingsOfSecretsStayTogether checks that every mapping of secrets names itself in its tag to.
func TestMappingsOfSecretsStayTogether(t *testing.T) {
	t.Parallel()
	visitStructs(func(typ reflect.Type) {
		for _, f := range document.FieldsOf(typ) {
			field := typ.Field(f.Index)
			if f.Secret && field.Type.Kind() == reflect.Map && !strings.Contains(","+strings.Join(f.Destinations, ",")+",", ","+f.Name+",") {
				t.Errorf("%s.%s does not name itself", typ.Name(), field.Name)
			}
		}
	})
}
