package config

import "strings"

// vendor is what is known of a model provider before it is asked.
type vendor struct {
	name          string
	keyVariable   string   // environment variable that holds the operator's key; empty: needs no key
	defaultModel  string   // defaultModel where none is named
	modelPrefixes []string // model names that tell the vendor
}

var vendors = []vendor{
	{"anthropic", "ANTHROPIC_API_KEY", "claude-haiku-4-5", []string{"claude-"}},
	{"openai", "OPENAI_API_KEY", "gpt-4o", []string{"gpt-", "chatgpt-", "o1", "o3", "o4"}},
	{"gemini", "GEMINI_API_KEY", "gemini-2.5-pro", []string{"gemini-"}},
	{"ollama", "", "qwen3", nil},
	{"scripted", "", "scripted", nil},
}

func findVendor(name string) *vendor {
	for i := range vendors {
		if vendors[i].name == name {
			return &vendors[i]
		}
	}
	return nil
}

// DetectProvider returns the first provider whose key lookup holds, and that key; without any, the scripted
// provider and no key.
func DetectProvider(lookup func(name string) (string, bool)) (provider, apiKey string) {
	for _, v := range vendors {
		if v.keyVariable == "" {
			continue
		}
		if key, _ := lookup(v.keyVariable); key != "" {
			return v.name, key
		}
	}
	return "scripted", ""
}

// applyDefaults fills in what follows from the rest of l: provider, model, key and temperature.
// Lookup is the operator's environment, nil for an app.
func (l *LLM) applyDefaults(lookup func(string) (string, bool)) {
	if l.Provider == "" {
		l.Provider = inferProvider(l.Model, lookup)
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
	if l.Temperature == nil && acceptsTemperature(l.Model) {
		t := defaultTemperature
		l.Temperature = &t
	}
}

// useOperatorKey fills in the operator's key where l has none. It goes to the vendor's own address alone.
func (l *LLM) useOperatorKey(operatorKey func(string) (string, bool)) {
	if v := findVendor(l.Provider); v != nil && v.keyVariable != "" && l.APIKey == "" && l.BaseURL == "" {
		l.APIKey, _ = operatorKey(v.keyVariable)
	}
}

func inferProvider(model string, lookup func(string) (string, bool)) string {
	for _, v := range vendors {
		if hasAnyPrefix(model, v.modelPrefixes) {
			return v.name
		}
	}
	if lookup == nil {
		return ""
	}
	if name, key := DetectProvider(lookup); key != "" {
		return name
	}
	return ""
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
