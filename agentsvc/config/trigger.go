package config

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"stoa/agentsvc/config/document"
)

// Trigger starts an agent without a caller: on a schedule or from a webhook.
type Trigger struct {
	// Type is what starts the agent.
	Type string `yaml:"type" jsonschema:"required,enum=schedule,enum=webhook"`
	// Enabled turns the trigger on.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// Cron is when to start: minute, hour, day, month and weekday, or @hourly, @daily, @weekly, @monthly, @yearly.
	Cron string `yaml:"cron" only:"type=schedule"`
	// Timezone is the IANA zone that cron is read in.
	Timezone string `yaml:"timezone" jsonschema:"default=UTC" only:"type=schedule"`
	// Input is the message the agent gets, whatever a webhook's body is; values that extract_fields pick follow it. Without
	// it, a webhook's message is the body, and a schedule says what time it is.
	Input string `yaml:"input"`
	// Path is where the webhook listens: a path of the app that is none of the server's own. Without it, it is /webhooks/ and
	// the agent's name.
	Path string `yaml:"path" only:"type=webhook"`
	// Methods are the HTTP methods the webhook answers. With GET and HEAD the query is the body, as a JSON object.
	Methods []string `yaml:"methods" jsonschema:"enum=POST,enum=PUT,enum=PATCH,enum=DELETE,enum=GET,enum=HEAD,default=POST" only:"type=webhook"`
	// Secret verifies the sender by an HMAC-SHA256 of the body: 24 to 256 bytes of text, or, for senders that sign as
	// Standard Webhooks has it, whsec_ and 24 to 64 bytes in base64; at least 8 different bytes. Only an app that
	// everybody may call can do without.
	Secret string `yaml:"secret" secret:"true" only:"type=webhook"`
	// SignatureHeader is the header that carries the signature, in hex: none that HTTP or the server uses itself.
	// Senders that sign as Standard Webhooks has it, for which the secret begins with whsec_, use theirs.
	SignatureHeader string `yaml:"signature_header" jsonschema:"default=X-Webhook-Signature" only:"type=webhook"`
	// TimestampHeader is the header with the delivery's time, in seconds since 1970, where the sender signs in hex what that
	// says, a dot and the body. Deliveries without it, or more than five minutes from now, are then refused.
	TimestampHeader string `yaml:"timestamp_header" only:"type=webhook"`
	// WebhookInput makes the agent's message from the webhook's body.
	WebhookInput *WebhookInput `yaml:"webhook_input" only:"type=webhook"`
	// Response says how the webhook is answered.
	Response *Response `yaml:"response" only:"type=webhook"`
}

// WebhookInput makes an agent's message from a webhook's body.
type WebhookInput struct {
	// Template is a Go template of the message; the body's fields are its data, or its field payload where the body is
	// no object.
	Template string `yaml:"template"`
	// ExtractFields pick values out of the body for the template. Without one, the message holds only them.
	ExtractFields []*ExtractField `yaml:"extract_fields"`
}

// ExtractField picks one value out of a webhook's body.
type ExtractField struct {
	// Path is the value's path in the body, with dots between names; a number is a position in a list.
	Path string `yaml:"path" jsonschema:"required"`
	// As is the name the template knows the value by. Without it, it is the last name of the path.
	As string `yaml:"as"`
	// Required refuses bodies without the value.
	Required bool `yaml:"required" jsonschema:"default=false"`
}

// Name returns the name of the value in the template.
func (f *ExtractField) Name() string {
	if f.As != "" {
		return f.As
	}
	return f.Path[strings.LastIndex(f.Path, ".")+1:]
}

// Response says how a webhook is answered.
type Response struct {
	// Mode is when the answer comes: with the result (sync), at once (async), or at once with the result posted
	// to an address from the body (callback).
	Mode string `yaml:"mode" jsonschema:"enum=sync,enum=async,enum=callback,default=sync"`
	// Timeout is how long a sync webhook waits for the result, at most 5m.
	Timeout time.Duration `yaml:"timeout" jsonschema:"default=30s" only:"mode=sync"`
	// CallbackField is the field of the body that holds the callback's address.
	// It is found as extract_fields find theirs.
	CallbackField string `yaml:"callback_field" jsonschema:"default=callback_url" only:"mode=callback"`
	// CallbackHosts are the hosts that a result may be posted to, with a port where it is not the usual one. A callback
	// needs them.
	CallbackHosts []string `yaml:"callback_hosts" only:"mode=callback"`
}

// maxResponseTimeout bounds how long a webhook may make its sender wait.
const maxResponseTimeout = 5 * time.Minute

// checkRules checks the rules of the trigger's type. A cron expression is parsed by package trigger.
func (t *Trigger) checkRules(c *validation, s document.Location) {
	switch t.Type {
	case "schedule":
		if !c.doc.HasValue(s.Value, "cron") {
			c.addProblem(s, "a schedule needs cron")
		}
	case "webhook":
		t.checkWebhook(c, s)
	}
}

// checkWebhook checks the path, the secret and the headers of a webhook. Without a secret anyone could start the
// agent: that is allowed for an open default app only.
func (t *Trigger) checkWebhook(c *validation, s document.Location) {
	agent := s.Path.Parent.Part
	route := findRoute(t.Path)
	switch other := c.webhooks[t.effectivePath(agent)]; {
	case t.Path != "" && route == "" && !isWebhookPath(t.Path):
		c.addProblem(s.Child("path"), fmt.Sprintf("must be a path such as /webhooks/orders, of at most %d bytes: it begins with a slash and has no empty part, none that is . or .., no space and none of ? # %% \\ { }", maxWebhookPath))
	case t.Path != "" && (route != "" || t.Path == c.metricsPath):
		c.addProblem(s.Child("path"), "is a path of the server's own, "+cmp.Or(route, t.Path)+": choose another one, such as /webhooks/"+agent)
	case other != "" && other != agent && t.Enabled:
		c.addProblem(s.Child("path"), "is the path of the webhook of the agent "+document.QuoteName(other)+" as well")
	}
	switch {
	case t.Secret != "" || !t.Enabled || c.doc.IsMissingVariable(s.Child("secret").Value):
	case c.Tenant:
		c.addProblem(s, "a webhook of an app needs a secret")
	case c.authEnabled:
		c.addProblem(s, "needs a secret: server.auth is on, and without one everybody could start the agent")
	case c.isWrittenEmpty(s.Child("secret")):
		c.addProblem(s.Child("secret"), "is empty: give the variable behind it a value, or leave the key out if everybody may start the agent")
	}
	if len(t.Methods) == 0 {
		c.addProblem(s.Child("methods"), "holds no method")
	}
	t.checkHeaders(c, s)
	if r := t.Response; t.Enabled && r != nil && r.Mode == "callback" && len(r.CallbackHosts) == 0 {
		c.addProblem(s.Child("response"), "mode callback needs callback_hosts: the hosts that a result may be posted to")
	}
	if t.Input != "" && t.WebhookInput != nil && t.WebhookInput.Template != "" {
		c.addProblem(s.Child("input"), "is the message, and so is webhook_input.template: leave out one of them")
	}
}

// isWrittenEmpty reports whether the key at s has an empty text, such as a variable with an empty default. A missing
// variable does not count: it was reported before.
func (val *validation) isWrittenEmpty(s document.Location) bool {
	n := s.Value
	return n != nil && n.Kind == yaml.ScalarNode && n.Value == "" && !val.doc.IsMissingVariable(n) && (val.doc.IsFromVariable(n) || !document.IsNull(n))
}

// reservedHeaders are headers with a meaning of their own in a request, in addition to nonCredentialHeaders.
var reservedHeaders = []string{
	"a2a-extensions", "a2a-version", "agent-name", "authorization", "baggage", "cache-control", "cookie", "date", "from", "idempotency-key", "if-match",
	"if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "max-forwards", "mcp-session-id", "origin", "pragma", "prefer", "range",
	"referer", "traceparent", "tracestate", "warning", "x-a2a-extensions", "x-http-method-override", "x-request-id",
}

// isReservedHeader reports whether HTTP or this server gives a header a meaning.
func isReservedHeader(name string) bool {
	name = strings.ToLower(name)
	return slices.Contains(nonCredentialHeaders, name) || slices.Contains(reservedHeaders, name) ||
		slices.ContainsFunc([]string{"access-control-", "mcp-", "proxy-", "sec-"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// checkHeaders checks the names of the headers of a delivery that is signed in hexadecimal.
func (t *Trigger) checkHeaders(c *validation, s document.Location) {
	for _, h := range []struct{ key, name string }{{"signature_header", t.SignatureHeader}, {"timestamp_header", t.TimestampHeader}} {
		switch {
		case h.key == "timestamp_header" && h.name == "":
		case !headerNameForm.MatchString(h.name):
			c.addProblem(s.Child(h.key), "is no name of a header")
		case slices.Contains([]string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"}, http.CanonicalHeaderKey(h.name)):
			c.addProblem(s.Child(h.key), "is a header of Standard Webhooks, which is understood without it: leave "+h.key+" out")
		case isReservedHeader(h.name):
			c.addProblem(s.Child(h.key), "is a header that HTTP or this server uses itself: name one of the sender's own, such as X-Webhook-Signature")
		}
	}
	switch {
	case t.TimestampHeader == "":
	case http.CanonicalHeaderKey(t.TimestampHeader) == http.CanonicalHeaderKey(t.SignatureHeader):
		c.addProblem(s.Child("timestamp_header"), "is the signature_header as well")
	case t.Secret == "":
		c.addProblem(s.Child("timestamp_header"), "needs a secret: without one nothing is signed")
	}
}

// effectivePath returns the path of an agent's webhook.
func (t *Trigger) effectivePath(agent string) string {
	if t.Path != "" {
		return t.Path
	}
	return "/webhooks/" + agent
}

// applyDefaults sets the path and the response of a webhook.
func (t *Trigger) applyDefaults(agent string) {
	if t == nil || t.Type != "webhook" {
		return
	}
	t.Path = t.effectivePath(agent)
	if t.Response == nil {
		t.Response = document.New[Response]()
	}
}

// webhookAgents returns the agent of each webhook path: the first one in document order if several have the same.
func webhookAgents(agents map[string]*Agent, order []string) map[string]string {
	at := map[string]string{}
	for _, name := range slices.Backward(order) {
		if a := agents[name]; a != nil && a.Trigger != nil && a.Trigger.Enabled && a.Trigger.Type == "webhook" {
			at[a.Trigger.effectivePath(name)] = name
		}
	}
	return at
}

// checkRules checks that the fields have different names.
func (w *WebhookInput) checkRules(c *validation, s document.Location) {
	names := map[string]bool{}
	for i, f := range w.ExtractFields {
		at := s.Child("extract_fields").Item(i)
		if f == nil {
			continue
		}
		if name := f.Name(); names[name] {
			c.addProblem(at, fmt.Sprintf("is the second field of the name %s: say another one with as", shortenText(name)))
		}
		names[f.Name()] = true
	}
}

// checkRules checks timeout and callback. A host of callback_hosts is compared as text, so that patterns are refused.
func (r *Response) checkRules(c *validation, s document.Location) {
	if r.Timeout <= 0 || r.Timeout > maxResponseTimeout {
		c.addProblem(s.Child("timeout"), fmt.Sprintf("must be more than nothing and at most %v", maxResponseTimeout))
	}
	if r.CallbackField == "" {
		c.addProblem(s.Child("callback_field"), "names no field of the body")
	}
	for i, host := range r.CallbackHosts {
		u, err := url.Parse("https://" + host)
		if err != nil || u.Host != host || u.Hostname() == "" || strings.HasSuffix(host, ":") || strings.ContainsAny(host, "* ,") {
			c.addProblem(s.Child("callback_hosts").Item(i), "must be a host, such as hooks.example.com or hooks.example.com:8443")
		}
	}
}
