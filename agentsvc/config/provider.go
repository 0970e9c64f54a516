package config

import "strings"

// vendor is what is known of a model provider before it is asked.
type vendor struct {
	name        string
	keyVariable string   // environment variable that holds the operator's key; empty: needs no key
	model       string   // model where none is named
	prefixes    []string // model names that tell the vendor
}

var vendors = []vendor{
	{"anthropic", "ANTHROPIC_API_KEY", "claude-haiku-4-5", []string{"claude-"}},
	{"openai", "OPENAI_API_KEY", "gpt-4o", []string{"gpt-", "chatgpt-", "o1", "o3", "o4"}},
	{"gemini", "GEMINI_API_KEY", "gemini-2.5-pro", []string{"gemini-"}},
	{"ollama", "", "qwen3", nil},
	{"scripted", "", "scripted", nil},
}

func vendorOf(name string) *vendor {
	for i := range vendors {
		if vendors[i].name == name {
			return &vendors[i]
		}
	}
	return nil
}

// Detect returns the first provider whose key lookup holds, and that key; without any, the scripted
// provider and no key.
func Detect(lookup func(name string) (string, bool)) (provider, apiKey string) {
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

// complete fills in what follows from the rest of l: provider, model, key and temperature.
// Lookup is the operator's environment, nil for an app.
func (l *LLM) complete(lookup func(string) (string, bool)) {
	if l.Provider == "" {
		l.Provider = providerOf(l.Model, lookup)
	}
	v := vendorOf(l.Provider)
	if v == nil {
		return
	}
	if l.Model == "" {
		l.Model = v.model
	}
	if l.APIKey == "" && lookup != nil && v.keyVariable != "" {
		l.APIKey, _ = lookup(v.keyVariable)
	}
	if l.Temperature == nil && takesTemperature(l.Model) {
		t := defaultTemperature
		l.Temperature = &t
	}
}

// borrow fills in the operator's key where l has none. It goes to the vendor's own address alone.
func (l *LLM) borrow(lend func(string) (string, bool)) {
	if v := vendorOf(l.Provider); v != nil && v.keyVariable != "" && l.APIKey == "" && l.BaseURL == "" {
		l.APIKey, _ = lend(v.keyVariable)
	}
}

func providerOf(model string, lookup func(string) (string, bool)) string {
	for _, v := range vendors {
		if hasPrefix(model, v.prefixes) {
			return v.name
		}
	}
	if lookup == nil {
		return ""
	}
	if name, key := Detect(lookup); key != "" {
		return name
	}
	return ""
}

func hasPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
