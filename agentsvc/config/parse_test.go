package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"

	"stoa/agentsvc/config/document"
	"stoa/tenancy/grant"
)

// TestProblems parses each document of testdata/problems and compares all its problems. The lines before the document
// set options: "tenant", "grants a b", "set NAME value".
func TestProblems(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/problems/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Parse(archive.Files[0].Data, parseOptions(t, string(archive.Comment), archive.Files[0].Name))
			got := "nothing\n"
			if err != nil {
				got = err.Error() + "\n"
			}
			if *update {
				archive.Files = append(archive.Files[:1], txtar.File{Name: "problems", Data: []byte(got)})
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(archive.Files[1].Data), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func parseOptions(t *testing.T, lines, file string) Options {
	t.Helper()
	values := map[string]string{}
	o := Options{File: file, Lookup: newMapLookup(values)}
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "tenant":
			o.Tenant = true
		case words[0] == "grants":
			o.Grants = grant.ParseList(words[1:])
		case words[0] == "set":
			values[words[1]] = strings.Join(words[2:], " ")
		default:
			t.Fatalf("unknown option %q", line)
		}
	}
	return o
}

func newMapLookup(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}

func mustParse(t *testing.T, src string, o Options) *Config {
	t.Helper()
	cfg, err := Parse([]byte(src), o)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestParseFillsDefaults(t *testing.T) {
	t.Parallel()
	cfg := mustParse(t, "llms: {default: {provider: scripted}}\nagents: {a: {}}\n", Options{})
	temperature := 0.7
	want := &Agent{
		Name: "a", Type: "llm", Version: "1.0.0", LLM: "default", Streaming: true, Visibility: "public",
		OutputModes: []string{"text/plain"}, Timeout: 30e9,
	}
	if diff := cmp.Diff(want, cfg.Agents["a"]); diff != "" {
		t.Errorf("agent: -want +got:\n%s", diff)
	}
	model := &LLM{Provider: "scripted", Model: "scripted", API: "chat", Temperature: &temperature}
	if diff := cmp.Diff(model, cfg.LLMs["default"]); diff != "" {
		t.Errorf("llm: -want +got:\n%s", diff)
	}
	server := Server{
		Host: "0.0.0.0", Port: 8080, GRPCPort: 50051, Transport: "json-rpc",
		CORS: CORS{
			AllowedMethods: []string{"GET", "POST", "OPTIONS"},
			AllowedHeaders: []string{"Content-Type", "Authorization"},
		},
		Auth: Auth{
			RefreshInterval: 15 * 60e9, RequireAuth: true,
			ExcludedPaths: []string{"/health", "/.well-known/agent-card.json"},
		},
		Studio: Studio{AllowedRoles: []string{"operator", "admin"}},
	}
	if diff := cmp.Diff(server, cfg.Server); diff != "" {
		t.Errorf("server: -want +got:\n%s", diff)
	}
	if cfg.Version != "2" || cfg.Logger.Level != "info" || cfg.Storage.Tasks.Backend != "sql" {
		t.Errorf("version %q, level %q, backend %q", cfg.Version, cfg.Logger.Level, cfg.Storage.Tasks.Backend)
	}
}

func TestParseDoesNotShareDefaults(t *testing.T) {
	t.Parallel()
	src := "llms: {default: {provider: scripted}}\nagents: {a: {}, b: {}}\n"
	cfg := mustParse(t, src, Options{})
	cfg.Agents["a"].OutputModes[0] = "changed"
	if got := cfg.Agents["b"].OutputModes[0]; got != "text/plain" {
		t.Errorf("agent b has %q", got)
	}
}

func TestParseExamples(t *testing.T) {
	t.Parallel()
	files, _ := filepath.Glob("testdata/valid/*.yaml")
	examples, _ := filepath.Glob("../../examples/*.yaml")
	anything := func(name string) (string, bool) { return "http://" + name, true }
	for _, file := range append(files, examples...) {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{File: file}
		if slices.Contains(examples, file) {
			o.Lookup = anything
		}
		if _, err := Parse(src, o); err != nil {
			t.Error(err)
		}
	}
}

func TestAgentNamesKeepFileOrder(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]string{
		"yaml": "agents:\n  zeta: {}\n  alpha: {}\n  mid: {}\nllms: {default: {provider: scripted}}\n",
		"json": `{"agents": {"zeta": {}, "alpha": {}, "mid": {}}, "llms": {"default": {"provider": "scripted"}}}`,
	} {
		cfg := mustParse(t, src, Options{})
		if diff := cmp.Diff([]string{"zeta", "alpha", "mid"}, cfg.AgentNames()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	cfg := DefaultConfig(nil)
	cfg.Agents["b"], cfg.Agents["a"] = &Agent{}, &Agent{}
	if diff := cmp.Diff([]string{"assistant", "a", "b"}, cfg.AgentNames()); diff != "" {
		t.Errorf("added by hand: -want +got:\n%s", diff)
	}
}

func TestParseMerges(t *testing.T) {
	t.Parallel()
	cfg := mustParse(t, `
llms:
  default: &base {provider: scripted, max_tokens: 5, base_url: "http://a"}
  other: {<<: *base, max_tokens: 6}
  third: {<<: [{base_url: "http://first"}, *base]}
`, Options{})
	for name, want := range map[string]LLM{
		"other": {MaxTokens: 6, BaseURL: "http://a"}, "third": {MaxTokens: 5, BaseURL: "http://first"},
	} {
		if got := cfg.LLMs[name]; got.MaxTokens != want.MaxTokens || got.BaseURL != want.BaseURL {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestProviderFollows(t *testing.T) {
	t.Parallel()
	keys := map[string]string{"OPENAI_API_KEY": "k", "GEMINI_API_KEY": "g"}
	for _, test := range []struct{ src, provider, model, key string }{
		{"{model: gpt-4o-mini}", "openai", "gpt-4o-mini", "k"},
		{"{model: o3-mini}", "openai", "o3-mini", "k"},
		{"{}", "openai", "gpt-4o", "k"},
		{"{api_key: own}", "openai", "gpt-4o", "own"},
		{"{model: claude-haiku-4-5, api_key: c}", "anthropic", "claude-haiku-4-5", "c"},
		{"{model: claude-opus-5, api_key: c}", "anthropic", "claude-opus-5", "c"},
		{"{provider: anthropic, api_key: c}", "anthropic", "claude-haiku-4-5", "c"},
		{"{model: gemini-2.5-flash}", "gemini", "gemini-2.5-flash", "g"},
		{"{provider: gemini}", "gemini", "gemini-2.5-pro", "g"},
		{"{provider: ollama}", "ollama", "qwen3", ""},
		{"{provider: scripted}", "scripted", "scripted", ""},
		{"{provider: openai, base_url: 'http://localhost:1'}", "openai", "gpt-4o", "k"},
	} {
		cfg := mustParse(t, "llms: {default: "+test.src+"}", Options{Lookup: newMapLookup(keys)})
		l := cfg.LLMs["default"]
		if l.Provider != test.provider || l.Model != test.model || l.APIKey != test.key {
			t.Errorf("%s: provider %s, model %s, key %s", test.src, l.Provider, l.Model, l.APIKey)
		}
		if hot := l.Temperature != nil; hot == (strings.HasPrefix(l.Model, "o3") || l.Model == "claude-opus-5") {
			t.Errorf("%s: temperature set: %v", test.src, hot)
		}
	}
}

// TestTemperatureIsClamped checks that a temperature above the vendor's range becomes its largest, with a warning.
func TestTemperatureIsClamped(t *testing.T) {
	t.Parallel()
	src := `llms:
  hot: {provider: anthropic, api_key: k, temperature: 1.5}
  newest: {model: claude-opus-5-5, api_key: k, temperature: 2}
  limit: {provider: anthropic, api_key: k, temperature: 1}
  other: {provider: gemini, api_key: k, temperature: 2}
agents: {assistant: {llm: hot}}
`
	cfg := mustParse(t, src, Options{})
	for name, want := range map[string]float64{"hot": 1, "newest": 1, "limit": 1, "other": 2} {
		if got := cfg.LLMs[name].Temperature; got == nil || *got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	message := "is more than 1, the most that anthropic takes: 1 is used"
	want := []document.Problem{
		{Path: "llms.hot.temperature", Line: 2, Column: 55, Message: message}, {Path: "llms.newest.temperature", Line: 3, Column: 61, Message: message},
	}
	if diff := cmp.Diff(want, cfg.Warnings()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestOllamaHost checks how a model of Ollama finds its server, and that the variable selects the vendor where nothing
// else does. A tenant's model reads no variable.
func TestOllamaHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"": "", "gpu": "http://gpu:11434", "gpu:8000": "http://gpu:8000", "10.0.0.7": "http://10.0.0.7:11434", "http://gpu": "http://gpu",
		"https://models.example/ollama": "https://models.example/ollama", "0.0.0.0": "http://127.0.0.1:11434", "0.0.0.0:8000": "http://127.0.0.1:8000",
		":8000": "http://127.0.0.1:8000", "[::]:8000": "http://127.0.0.1:8000", "::1": "http://[::1]:11434", "\" gpu \"": "http://gpu:11434",
	} {
		o := Options{Lookup: newMapLookup(map[string]string{"OLLAMA_HOST": host})}
		for _, src := range []string{"{provider: ollama}", "{model: qwen3}", "{model: 'qwen3:8b'}"} {
			if got := mustParse(t, "llms: {default: "+src+"}", o).LLMs["default"]; got.Provider != "ollama" || got.BaseURL != want {
				t.Errorf("%s with %q: %s at %q, want %q", src, host, got.Provider, got.BaseURL, want)
			}
		}
		if host == "" {
			continue
		}
		if got := mustParse(t, "llms: {default: {}}", o).LLMs["default"]; got.Provider != "ollama" || got.Model != "qwen3" || got.BaseURL != want {
			t.Errorf("nothing written, with %q: %s %s at %q", host, got.Provider, got.Model, got.BaseURL)
		}
		if got := mustParse(t, "embedders: {default: {}}", o).Embedders["default"]; got.BaseURL != want {
			t.Errorf("embedder with %q: at %q, want %q", host, got.BaseURL, want)
		}
		if got := mustParse(t, "llms: {default: {provider: ollama, base_url: 'http://own'}}", o).LLMs["default"]; got.BaseURL != "http://own" {
			t.Errorf("with %q: the written address became %q", host, got.BaseURL)
		}
		o.Tenant = true
		if got := mustParse(t, "llms: {default: {provider: ollama}}", o).LLMs["default"]; got.BaseURL != "" {
			t.Errorf("a tenant's model is sent to %q", got.BaseURL)
		}
	}
}

func TestTenantModelKeepsOffTheEnvironment(t *testing.T) {
	t.Parallel()
	cfg := mustParse(t, "llms: {default: {provider: openai}}", Options{
		Tenant: true, Grants: grant.List{{Name: "operator_models"}},
		Lookup: newMapLookup(map[string]string{"OPENAI_API_KEY": "canary"}),
	})
	if key := cfg.LLMs["default"].APIKey; key != "" {
		t.Errorf("the key is %q", key)
	}
}

func TestOperatorKeys(t *testing.T) {
	t.Parallel()
	src := "llms: {default: {provider: openai}, own: {provider: openai, api_key: mine, base_url: 'https://x.example'}, local: {provider: ollama}}"
	for _, grants := range []grant.List{{{Name: grant.OperatorModels}}, nil} {
		cfg, err := Parse([]byte(src), Options{Tenant: true, Grants: grants, OperatorKey: newMapLookup(map[string]string{"OPENAI_API_KEY": "lent"})})
		if grants == nil {
			if err == nil {
				t.Error("a key is lent without a grant")
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"default": "lent", "own": "mine", "local": ""} {
			if got := cfg.LLMs[name].APIKey; got != want {
				t.Errorf("%s has the key %q, want %q", name, got, want)
			}
		}
	}
	_, err := Parse([]byte("llms: {far: {provider: openai, base_url: 'https://x.example'}}"), Options{
		Tenant: true, Grants: grant.List{{Name: "operator_models"}}, OperatorKey: newMapLookup(map[string]string{"OPENAI_API_KEY": "lent"}),
	})
	if err == nil {
		t.Error("a key is lent to another address")
	}
}

func TestDefault(t *testing.T) {
	t.Parallel()
	for _, want := range []struct{ provider, variable string }{
		{"anthropic", "ANTHROPIC_API_KEY"}, {"openai", "OPENAI_API_KEY"}, {"gemini", "GEMINI_API_KEY"},
	} {
		keys := map[string]string{want.variable: "a"}
		if want.provider == "anthropic" {
			keys["OPENAI_API_KEY"], keys["GEMINI_API_KEY"] = "b", "c"
		}
		keys["OLLAMA_HOST"] = "gpu" // a key comes first
		cfg := DefaultConfig(newMapLookup(keys))
		if got := cfg.LLMs[cfg.Agents["assistant"].LLM]; got.Provider != want.provider || got.APIKey != "a" || got.BaseURL != "" {
			t.Errorf("%s: model %+v", want.variable, got)
		}
	}
	temperature := 0.7
	cfg := DefaultConfig(newMapLookup(map[string]string{"OLLAMA_HOST": "gpu.internal"}))
	local := &LLM{Provider: "ollama", Model: "qwen3", BaseURL: "http://gpu.internal:11434", API: "chat", Temperature: &temperature}
	if diff := cmp.Diff(local, cfg.LLMs[cfg.Agents["assistant"].LLM]); diff != "" {
		t.Errorf("OLLAMA_HOST: -want +got:\n%s", diff)
	}
	cfg = DefaultConfig(nil)
	if got := cfg.LLMs[cfg.Agents["assistant"].LLM]; got == nil || got.Provider != "scripted" || got.APIKey != "" {
		t.Errorf("model %+v", got)
	}
	if diff := cmp.Diff([]string{"assistant"}, cfg.AgentNames()); diff != "" {
		t.Error(diff)
	}
}

func TestErrorIsTyped(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte("agents:\n  a: {intruction: x}\nllms: {default: {provider: scripted}}"), Options{})
	var e *document.Error
	if !errors.As(err, &e) {
		t.Fatalf("%T", err)
	}
	want := []document.Problem{{Path: "agents.a.intruction", Line: 2, Column: 7, Message: "is not a known key", Suggestion: "instruction"}}
	if diff := cmp.Diff(want, e.Problems); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestWebhookPaths checks which paths a webhook can have.
func TestWebhookPaths(t *testing.T) {
	t.Parallel()
	for path, good := range map[string]bool{
		"/webhooks/x": true, "/webhooks/x/y": true, "/hooks": true, "/hooks/": true, "/tasks/x/new": true, "/v1/hooks": true, "/agents/x/hook": true, "/a.b~c/d:e@f,g": true, "/ü": true,
		"/": false, "hooks": false, "/health": false, "/figures": false, "/tasks": false, "/tasks/new": false, "/tasks/x/approve": false, "/agents/x": false, "/v1/agents/x/tasks/y:cancel": false,
		"/admin": false, "/admin/x": false, "/apps/acme/x": false, "/metrics": false, "/x//y": false, "/x/../y": false, "/x/.": false, "/a b": false, "/x?y": false, "/x#y": false,
		"/x%2fy": false, "/x\\y": false, "/webhooks/{agent-name}": false, "/x\x01": false, "/" + strings.Repeat("x", 255): false,
	} {
		src, err := yaml.Marshal(map[string]any{
			"llms":          map[string]any{"m": map[string]any{"provider": "scripted"}},
			"agents":        map[string]any{"a": map[string]any{"llm": "m", "trigger": map[string]any{"type": "webhook", "path": path}}},
			"observability": map[string]any{"metrics": map[string]any{"enabled": true, "endpoint": "/figures"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(src, Options{}); (err == nil) != good {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// TestNoAgentsWarning checks that a configuration without agents, which loads and answers nothing, is warned of.
func TestNoAgentsWarning(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]int{
		"{}": 1, "agents: {}": 1, "llms: {m: {provider: scripted}}": 1, "# nothing\n": 1, "llms: {m: {provider: scripted}}\nagents: {a: {llm: m}}": 0,
	} {
		got := mustParse(t, src, Options{Tenant: true}).Warnings()
		if len(got) != want || want > 0 && (got[0].Path != "agents" || !strings.Contains(got[0].Message, "the app has no agents")) {
			t.Errorf("%q: %v", src, got)
		}
	}
}

// TestSharedLimitWarning checks that a limit of users is warned of where callers need no credential.
func TestSharedLimitWarning(t *testing.T) {
	t.Parallel()
	const auth = "server: {auth: {enabled: true, jwks_url: https://x, issuer: x, audience: y%s}}"
	for src, want := range map[string]int{
		"": 1, fmt.Sprintf(auth, ", require_auth: false"): 1, fmt.Sprintf(auth, ""): 0,
	} {
		cfg, err := Parse([]byte("rate_limiting: {enabled: true, scope: user, limits: [{type: count, window: day, limit: 1}]}\nllms: {m: {provider: scripted}}\nagents: {a: {llm: m}}\n"+src), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.Warnings(); len(got) != want || want > 0 && (got[0].Path != "rate_limiting.scope" || got[0].Line != 1) {
			t.Errorf("%s: %v", src, got)
		}
	}
}
