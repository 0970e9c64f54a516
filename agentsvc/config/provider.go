package config

import (
	"cmp"
	"net"
	"regexp"
	"strconv"
	"strings"
)

// vendor is what is known of a model provider without a request.
type vendor struct {
	name string
	// keyVariable is the environment variable of the operator's key; "" = the vendor needs none.
	keyVariable   string
	defaultModel  string   // used if the document names none
	modelPrefixes []string // prefixes of model names that imply the vendor
	// maxTemperature is the largest temperature that the vendor accepts.
	maxTemperature float64
}

// vendors are the providers in the order in which detectProvider tries them.
var vendors = []vendor{
	{"anthropic", "ANTHROPIC_API_KEY", "claude-haiku-4-5", []string{"claude-"}, 1},
	{"openai", "OPENAI_API_KEY", "gpt-4o", []string{"gpt-", "chatgpt-", "o1", "o3", "o4"}, 2},
	{"gemini", "GEMINI_API_KEY", "gemini-2.5-pro", []string{"gemini-"}, 2},
	{"ollama", "", "qwen3", []string{"qwen3"}, 2},
	{"scripted", "", "scripted", nil, 2},
}

// findVendor returns the vendor of a name, nil if it is unknown.
func findVendor(name string) *vendor {
	for i := range vendors {
		if vendors[i].name == name {
			return &vendors[i]
		}
	}
	return nil
}

// detectProvider returns the first provider whose key the environment has, else ollama if the environment names its
// server, else "". A nil lookup has nothing.
func detectProvider(lookup func(name string) (string, bool)) string {
	if lookup == nil {
		return ""
	}
	for _, v := range vendors {
		if v.keyVariable == "" {
			continue
		}
		if key, _ := lookup(v.keyVariable); key != "" {
			return v.name
		}
	}
	if ollamaAddress(lookup) != "" {
		return "ollama"
	}
	return ""
}

// ollamaHostVariable is the environment variable with which Ollama's own programs find their server.
const ollamaHostVariable = "OLLAMA_HOST"

// ollamaAddress returns the address of the Ollama server that the environment names, "" if it names none. As for
// Ollama's own programs, scheme and port may be missing, and the address at which a server listens on all interfaces
// is this machine's. lookup is the operator's environment, nil for a tenant.
func ollamaAddress(lookup func(name string) (string, bool)) string {
	if lookup == nil {
		return ""
	}
	host, _ := lookup(ollamaHostVariable)
	host = strings.Trim(strings.TrimSpace(host), `"' `)
	if host == "" || strings.Contains(host, "://") {
		return host
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), "11434"
	}
	if ip := net.ParseIP(name); name == "" || ip != nil && ip.IsUnspecified() {
		name = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(name, port)
}

// applyDefaults sets the provider, model, key, address and temperature that the document leaves out. lookup is the
// operator's environment, nil for a tenant.
func (l *LLM) applyDefaults(lookup func(string) (string, bool)) {
	if l.Provider == "" {
		l.Provider = cmp.Or(InferProvider(l.Model), detectProvider(lookup))
	}
	v := findVendor(l.Provider)
	if v == nil {
		return
	}
	if l.Model == "" {
		l.Model = v.defaultModel
	}
	if l.APIKey == "" && lookup != nil && v.keyVariable != "" {
		l.APIKey, _ = lookup(v.keyVariable)
	}
	if l.BaseURL == "" && l.Provider == "ollama" {
		l.BaseURL = ollamaAddress(lookup)
	}
	if l.Temperature == nil && acceptsTemperature(l.Model) {
		t := defaultTemperature
		l.Temperature = &t
	}
}

// useOperatorKey sets the operator's key if l has none. It does nothing if l has a base_url: the operator's key must
// only be sent to the vendor's own address.
func (l *LLM) useOperatorKey(operatorKey func(string) (string, bool)) {
	if v := findVendor(l.Provider); v != nil && v.keyVariable != "" && l.APIKey == "" && l.BaseURL == "" {
		l.APIKey, _ = operatorKey(v.keyVariable)
	}
}

// InferProvider returns the provider that a model's name implies, else "".
func InferProvider(model string) string {
	for _, v := range vendors {
		if hasAnyPrefix(model, v.modelPrefixes) {
			return v.name
		}
	}
	return ""
}

// hasAnyPrefix reports whether s begins with one of prefixes.
func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// defaultTemperature is the temperature of models that accept any, if the document sets none.
const defaultTemperature = 0.7

// claudeForm and gptForm recognise models of two vendors whose newer models refuse a temperature. The names of future
// models are unknown, so that the older ones that accept it are recognised, also behind a gateway's prefix: Claude up
// to 4.6, and GPT up to 4.
var (
	claudeForm = regexp.MustCompile(`(?:^|[./:])claude-(?:(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?:[-@:]|$))?`)
	gptForm    = regexp.MustCompile(`(?:^|[./:])(?:gpt-(\d{1,2})|o\d|codex-)`)
)

// acceptsTemperature reports whether a model of this name certainly accepts any temperature.
func acceptsTemperature(model string) bool {
	if v := claudeForm.FindStringSubmatch(model); v != nil {
		major, err := strconv.Atoi(v[1])
		minor, _ := strconv.Atoi(v[2])
		return err == nil && (major < 4 || major == 4 && minor <= 6)
	}
	if v := gptForm.FindStringSubmatch(model); v != nil {
		major, err := strconv.Atoi(v[1])
		return err == nil && major <= 4
	}
	return true
}

// refusesTemperature reports whether the document sets a temperature that Anthropic's API refuses for this model.
func (l *LLM) refusesTemperature() bool {
	return l.Provider == "anthropic" && l.BaseURL == "" && l.Temperature != nil && *l.Temperature != 1 && !acceptsTemperature(l.Model)
}
