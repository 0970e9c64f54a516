package trigger_test

import (
	"errors"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/trigger"
)

// TestCallback checks that the URL is read from the body, and that its host must be in the list.
func TestCallback(t *testing.T) {
	t.Parallel()
	c := &trigger.Callback{Field: "reply.to", Hosts: []string{"hooks.example.com", "other.example.com:8443", "[2001:db8::1]"}}
	for _, tt := range []struct{ body, wrong string }{
		{`{"reply": {"to": "https://hooks.example.com/x?y=1"}}`, ""},
		{`{"reply": {"to": "https://HOOKS.example.com:443"}}`, ""},
		{`{"reply": {"to": "http://hooks.example.com:80"}}`, ""},
		{`{"reply": {"to": "https://other.example.com:8443/"}}`, ""},
		{`{"reply": {"to": "https://[2001:db8::1]/"}}`, ""},
		{`{"reply": {}}`, "body: has no reply.to: the address that the result is to be posted to"},
		{`7`, "body: has no reply.to: the address that the result is to be posted to"},
		{`{"reply": {"to": null}}`, "body.reply.to: must be a text: the address that the result is to be posted to"},
		{`{"reply": {"to": ""}}`, "body.reply.to: is no address of the web"},
		{`{"reply": {"to": "hooks.example.com"}}`, "body.reply.to: is no address of the web"},
		{`{"reply": {"to": "http://hooks.example.com:443"}}`, errOtherHost("hooks.example.com:443")},
		{`{"reply": {"to": "https://hooks.example.com:80"}}`, errOtherHost("hooks.example.com:80")},
		{`{"reply": {"to": "https://other.example.com"}}`, errOtherHost("other.example.com")},
		{`{"reply": {"to": "https://hooks.example.com@evil.example"}}`, "body.reply.to: must not hold a name or password"},
		{`{"reply": {"to": "https://hooks.example.com.evil.example"}}`, errOtherHost("hooks.example.com.evil.example")},
		{`{"reply": {"to": "https://evil.example/hooks.example.com"}}`, errOtherHost("evil.example")},
		{`{"reply": {"to": "https://hooks.example.com."}}`, errOtherHost("hooks.example.com.")},
		{`{`, "body: is not JSON: unexpected EOF"},
	} {
		_, err := c.FindAddress("application/json", []byte(tt.body))
		if tt.wrong == "" && err != nil || tt.wrong != "" && (!errors.Is(err, agentsvc.CodeInvalid) || err.Error() != tt.wrong) {
			t.Errorf("%s: %v, want %q", tt.body, err, tt.wrong)
		}
	}
	if got, err := c.FindAddress("application/x-www-form-urlencoded", []byte("reply.to=x")); err == nil {
		t.Errorf("a name with a dot is a path: %q", got)
	}
}

// errOtherHost returns the error for a host that is not in the list.
func errOtherHost(host string) string {
	return `body.reply.to: is on a host that is not allowed: add "` + host + `" to response.callback_hosts of the agent's trigger`
}
