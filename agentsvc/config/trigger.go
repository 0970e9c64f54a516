package config

import "time"

// Trigger starts an agent without a caller: on a schedule or from a webhook.
type Trigger struct {
	// Type is what starts the agent.
	Type string `yaml:"type" jsonschema:"required,enum=schedule,enum=webhook"`
	// Enabled turns the trigger on.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// Cron is when to start, in the five fields of cron.
	Cron string `yaml:"cron" only:"type=schedule"`
	// Timezone is the IANA zone that cron is read in.
	Timezone string `yaml:"timezone" jsonschema:"default=UTC" only:"type=schedule"`
	// Input is the message the agent gets.
	Input string `yaml:"input"`
	// Path is where the webhook listens. Without it, it is /webhooks/ and the agent's name.
	Path string `yaml:"path" only:"type=webhook"`
	// Methods are the HTTP methods the webhook answers.
	Methods []string `yaml:"methods" jsonschema:"default=POST" only:"type=webhook"`
	// Secret verifies the sender by an HMAC-SHA256 of the body. An app needs one.
	Secret string `yaml:"secret" secret:"true" only:"type=webhook"`
	// SignatureHeader is the header that carries the signature.
	SignatureHeader string `yaml:"signature_header" jsonschema:"default=X-Webhook-Signature" only:"type=webhook"`
	// WebhookInput makes the agent's message from the webhook's body.
	WebhookInput *WebhookInput `yaml:"webhook_input" only:"type=webhook"`
	// Response says how the webhook is answered.
	Response *Response `yaml:"response" only:"type=webhook"`
}

// WebhookInput makes an agent's message from a webhook's body.
type WebhookInput struct {
	// Template is a Go template of the message; the body's fields are its data.
	Template string `yaml:"template"`
	// ExtractFields pick values out of the body for the template.
	ExtractFields []*ExtractField `yaml:"extract_fields"`
}

// ExtractField picks one value out of a webhook's body.
type ExtractField struct {
	// Path is where the value lies in the body, with dots between names.
	Path string `yaml:"path" jsonschema:"required"`
	// As is the name the template knows the value by. Without it, it is the last name of the path.
	As string `yaml:"as"`
}

// Response says how a webhook is answered.
type Response struct {
	// Mode is when the answer comes: with the result (sync), at once (async), or at once with the result posted
	// to an address from the body (callback).
	Mode string `yaml:"mode" jsonschema:"enum=sync,enum=async,enum=callback,default=sync"`
	// Timeout is how long a sync webhook waits for the result.
	Timeout time.Duration `yaml:"timeout" jsonschema:"default=30s" only:"mode=sync"`
	// CallbackField is the field of the body that holds the callback's address.
	CallbackField string `yaml:"callback_field" jsonschema:"default=callback_url" only:"mode=callback"`
}

func (t *Trigger) check(c *checks, s spot) {
	if t.Type == "schedule" && !c.doc.has(s.value, "cron") {
		c.problem(s, "a schedule needs cron")
	}
	if c.Tenant && t.Type == "webhook" && !c.doc.has(s.value, "secret") {
		c.problem(s, "a webhook of an app needs a secret")
	}
}
