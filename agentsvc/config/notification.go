package config

import "time"

// Notification tells another service how an agent's tasks go.
type Notification struct {
	// ID names the notification; no two of an agent have the same.
	ID string `yaml:"id" jsonschema:"required"`
	// Type is how it is sent.
	Type string `yaml:"type" jsonschema:"enum=webhook,default=webhook"`
	// URL is where it is sent.
	URL string `yaml:"url" jsonschema:"required"`
	// Enabled turns the notification on.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// Events are what it tells of.
	Events []string `yaml:"events" jsonschema:"required,enum=task.started,enum=task.completed,enum=task.failed"`
	// Headers are sent with it.
	Headers map[string]string `yaml:"headers" secret:"true"`
	// Payload replaces the built-in body.
	Payload *Payload `yaml:"payload"`
	// Retry says how often sending is tried again.
	Retry NotificationRetry `yaml:"retry"`
}

// Payload replaces the built-in body of a notification.
type Payload struct {
	// Template is a Go template of the body, with the fields .Type .AgentName .TaskID .Status .Result .Error .Timestamp.
	Template string `yaml:"template"`
}

// NotificationRetry says how often sending a notification is tried again.
type NotificationRetry struct {
	// MaxAttempts is how often sending is tried.
	MaxAttempts int `yaml:"max_attempts" jsonschema:"minimum=1,default=3"`
	// InitialDelay is the wait before the second attempt; it doubles with each further one.
	InitialDelay time.Duration `yaml:"initial_delay" jsonschema:"default=1s"`
	// MaxDelay is the longest wait.
	MaxDelay time.Duration `yaml:"max_delay" jsonschema:"default=30s"`
}
