package redact

import "testing"

// TestAddressInDefault masks addresses that are the default of a variable, and restores them only for the same variable and
// host.
func TestAddressInDefault(t *testing.T) {
	t.Parallel()
	doc := func(url string) map[string]any {
		return map[string]any{"tools": map[string]any{"t": map[string]any{"url": url}}}
	}
	url := func(doc map[string]any) string {
		return doc["tools"].(map[string]any)["t"].(map[string]any)["url"].(string)
	}
	const old = "${CRM:https://h.example/mcp?a=b&token=s3cretvalue}"
	const masked = "${CRM:https://h.example/mcp?a=b&token=********}"
	if got := url(MaskSecrets(doc(old))); got != masked {
		t.Errorf("masked: %s", got)
	}
	for _, tt := range []struct{ name, given, want string }{
		{"as it was shown", masked, old},
		{"another path", "${CRM:https://h.example/other?token=********}", "${CRM:https://h.example/other?token=s3cretvalue}"},
		{"another host", "${CRM:https://evil.example/mcp?token=********}", "${CRM:https://evil.example/mcp?token=********}"},
		{"another variable", "${crm:https://h.example/mcp?token=********}", "${crm:https://h.example/mcp?token=********}"},
		{"no variable", "https://h.example/mcp?token=********", "https://h.example/mcp?token=********"},
	} {
		if got := url(RestoreSecrets(doc(tt.given), doc(old))); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	const withUser = "${LLM:https://user:s3cret@h.example/v1}"
	if got := url(MaskSecrets(doc(withUser))); got != "${LLM:https://********@h.example/v1}" {
		t.Errorf("masked: %s", got)
	}
}
