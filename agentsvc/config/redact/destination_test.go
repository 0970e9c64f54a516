package redact

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"stoa/agentsvc/config"
	"stoa/agentsvc/config/document"
)

// TestSecretStaysWithItsHost checks, for each kind of block with a secret and a host, that a masked secret is
// restored only for the host it was given for: the document as shown is accepted as a whole, and with another host
// the secret stays masked, which Parse refuses at its path.
func TestSecretStaysWithItsHost(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		src      string
		from, to string // replacement in the document as it is shown
		path     string // of the secret that is then missing, "" = it is restored
	}{
		"model, address":            {`llms: {m: {provider: openai, model: x, api_key: canary, base_url: "https://one.example"}}`, "one.example", "two.example", "llms.m.api_key"},
		"model, scheme":             {`llms: {m: {provider: openai, model: x, api_key: canary, base_url: "https://one.example"}}`, "https://", "http://", "llms.m.api_key"},
		"model, port":               {`llms: {m: {provider: openai, model: x, api_key: canary, base_url: "https://one.example"}}`, "one.example", "one.example:8443", "llms.m.api_key"},
		"model, usual port":         {`llms: {m: {provider: openai, model: x, api_key: canary, base_url: "https://one.example"}}`, "one.example", "ONE.example:443", ""},
		"model, path":               {`llms: {m: {provider: openai, model: x, api_key: canary, base_url: "https://one.example/v1"}}`, "/v1", "/v2", ""},
		"model, address added":      {`llms: {m: {provider: openai, model: x, api_key: canary}}`, "model: x", `model: x, base_url: "https://two.example"`, "llms.m.api_key"},
		"model, vendor":             {`llms: {m: {provider: openai, model: x, api_key: canary}}`, "openai", "gemini", "llms.m.api_key"},
		"model, other field":        {`llms: {m: {provider: openai, model: x, api_key: canary}}`, "model: x", "model: z", ""},
		"model, user in address":    {`llms: {m: {provider: openai, model: x, base_url: "https://user:canary@one.example"}}`, "one.example", "two.example", "llms.m.base_url"},
		"model, user, other path":   {`llms: {m: {provider: openai, model: x, base_url: "https://user:canary@one.example/v1"}}`, "/v1", "/v2", ""},
		"embedder":                  {`embedders: {e: {provider: openai, api_key: canary, base_url: "https://one.example"}}`, "one.example", "two.example", "embedders.e.api_key"},
		"vector store, host":        {`vector_stores: {v: {type: qdrant, host: one.example, api_key: canary}}`, "one.example", "two.example", "vector_stores.v.api_key"},
		"vector store, port":        {`vector_stores: {v: {type: qdrant, host: one.example, port: 1, api_key: canary}}`, "port: 1", "port: 2", "vector_stores.v.api_key"},
		"database, host":            {`databases: {d: {driver: postgres, host: one.example, database: x, password: canary}}`, "one.example", "two.example", "databases.d.password"},
		"database, port":            {`databases: {d: {driver: postgres, host: one.example, port: 1, database: x, password: canary}}`, "port: 1", "port: 2", "databases.d.password"},
		"tools, address":            {`tools: {t: {url: "https://one.example", headers: {X-Key: canary}}}`, "one.example", "two.example", "tools.t.headers.X-Key"},
		"tools, token in address":   {`tools: {t: {url: "https://one.example/mcp?api_key=canary"}}`, "one.example", "two.example", "tools.t.url"},
		"tools, token, other path":  {`tools: {t: {url: "https://one.example/mcp?api_key=canary&v=1"}}`, "v=1", "v=2", ""},
		"program":                   {`tools: {t: {command: one, env: {KEY: canary}}}`, "one", "two", "tools.t.env.KEY"},
		"program, arguments":        {`tools: {t: {command: one, args: [a], env: {KEY: canary}}}`, "args: [a]", "args: [b]", "tools.t.env.KEY"},
		"remote agent, headers":     {`agents: {a: {type: remote, url: "https://one.example", headers: {X-Key: canary}}}`, "one.example", "two.example", "agents.a.headers.X-Key"},
		"remote agent, credentials": {`agents: {a: {type: remote, url: "https://one.example", credentials: {token: canary}}}`, "one.example", "two.example", "agents.a.credentials.token"},
		"remote agent, card":        {`agents: {a: {type: remote, agent_card_url: "https://one.example/c", credentials: {token: canary}}}`, "one.example", "two.example", "agents.a.credentials.token"},
		"notification":              {`agents: {a: {notifications: [{id: n, url: "https://one.example", events: [task.started], headers: {X-Key: canary}}]}}`, "one.example", "two.example", "agents.a.notifications[0].headers.X-Key"},
		"documents":                 {`document_stores: {d: {source: {type: api, api: {url: "https://one.example", headers: {X-Key: canary}}}}}`, "one.example", "two.example", "document_stores.d.source.api.headers.X-Key"},
		"webhook":                   {`agents: {a: {trigger: {type: webhook, secret: canary, path: /webhooks/one}}}`, "/webhooks/one", "/webhooks/two", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := decodeYAML(t, tt.src)
			shown := MaskSecrets(old)
			given := decodeYAML(t, strings.Replace(tt.src, tt.from, tt.to, 1))
			if reflect.DeepEqual(old, given) {
				t.Fatal("the case changes nothing")
			}
			if preserved := RestoreSecrets(shown, old); !reflect.DeepEqual(preserved, old) {
				t.Errorf("what was shown is taken back as %v", preserved)
			}
			restored := RestoreSecrets(MaskSecrets(given), old)
			_, err := config.Parse(marshalJSON(t, restored), config.Options{})
			missed := err != nil && strings.Contains(err.Error(), tt.path+":") && strings.Contains(err.Error(), "mask")
			switch {
			case tt.path == "" && !reflect.DeepEqual(restored, given):
				t.Errorf("restored as %v", restored)
			case tt.path != "" && (!missed || strings.Contains(string(marshalJSON(t, restored)), "canary")):
				t.Errorf("%s is not missed: %v, %v", tt.path, err, restored)
			}
		})
	}
}

// TestSecretsHaveDestinations checks that every secret field has the tag to, or is known to be sent nowhere.
func TestSecretsHaveDestinations(t *testing.T) {
	t.Parallel()
	nowhere := map[string]bool{"Trigger.Secret": true, "Credentials.Token": true} // only verified; the tag is where Credentials is used
	visitStructs(func(typ reflect.Type) {
		names := map[string]bool{}
		for _, f := range document.FieldsOf(typ) {
			names[f.Name] = true
		}
		for _, f := range document.FieldsOf(typ) {
			field := typ.Field(f.Index)
			if name := typ.Name() + "." + field.Name; f.Secret && len(f.Destinations) == 0 && !nowhere[name] {
				t.Errorf("%s does not say where it goes", name)
			}
			for _, to := range f.Destinations {
				if !names[to] {
					t.Errorf("%s.%s goes to %s, which is no field of the same struct", typ.Name(), field.Name, to)
				}
			}
		}
	})
}

// visitStructs calls f once for every struct of the document.
func visitStructs(f func(reflect.Type)) {
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type)
	visit = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Map || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		f(typ)
		for _, field := range document.FieldsOf(typ) {
			visit(typ.Field(field.Index).Type)
		}
	}
	visit(reflect.TypeFor[config.Config]())
}

func marshalJSON(t *testing.T, doc map[string]any) []byte {
	t.Helper()
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestMaskAddress checks that the secrets of a URL are masked, and nothing else.
func TestMaskAddress(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"https://one.example/p?v=1#x":                                     "https://one.example/p?v=1#x",
		"https://user:pass@one.example:8443/p":                            "https://********@one.example:8443/p",
		"https://token@one.example":                                       "https://********@one.example",
		"https://one.example/?api_key=x&v=1&X-Amz-Signature=s&Key=k&a":    "https://one.example/?api_key=********&v=1&X-Amz-Signature=********&Key=********&a",
		"https://one.example/?a=b;token=x;v=1&c=d;e=f":                    "https://one.example/?a=********&c=d;e=f",
		"https://one.example/?page=next&id=0123456789abcdef01234":         "https://one.example/?page=next&id=********",
		"https://${USER}:${PASS}@one.example/?token=${TOKEN}":             "https://${USER}:${PASS}@one.example/?token=${TOKEN}",
		"https://${USER}:pass@one.example/?token=${TOKEN:fallback}":       "https://********@one.example/?token=********",
		"postgres://me:pass@one.example/db?sslmode=require":               "postgres://********@one.example/db?sslmode=require",
		"see https://user:pass@one.example for more":                      "********",
		"write to a@b.example or look at https://one.example/?token=here": "write to a@b.example or look at https://one.example/?token=here",
		"https://a:b@c@one.example/":                                      "https://********@one.example/",
		"HTTPS://user:pass@one.example":                                   "HTTPS://********@one.example",
	} {
		doc := map[string]any{"x": src}
		shown := MaskSecrets(doc)
		if shown["x"] != want {
			t.Errorf("%s is shown as %s, want %s", src, shown["x"], want)
		}
		if back := RestoreSecrets(shown, doc); back["x"] != src {
			t.Errorf("%s comes back as %s", src, back["x"])
		}
	}
}
