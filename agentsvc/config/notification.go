package config

import (
	"fmt"
	"slices"
	"time"

	"stoa/agentsvc/config/document"
)

// Notification sends the progress of an agent's tasks to another service.
type Notification struct {
	// ID names the notification; no two of an agent have the same.
	ID string `yaml:"id" jsonschema:"required"`
	// Type is how it is sent.
	Type string `yaml:"type" jsonschema:"enum=webhook,default=webhook"`
	// URL is where it is sent.
	URL string `yaml:"url" jsonschema:"required"`
	// Enabled turns the notification on.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// Events are what it is sent for: the agent has begun a task, the task has completed, or it has ended in any other way.
	Events []string `yaml:"events" jsonschema:"required,enum=task.started,enum=task.completed,enum=task.failed"`
	// Headers are sent with it. They go before the built-in Content-Type.
	Headers map[string]string `yaml:"headers" secret:"true" to:"url,headers"`
	// Payload replaces the built-in body.
	Payload *Payload `yaml:"payload"`
	// Retry says how often sending is tried again.
	Retry NotificationRetry `yaml:"retry"`
}

// Payload replaces the built-in body of a notification.
type Payload struct {
	// Template is a Go template of the body, with the fields .Type .AgentName .TaskID .ContextID .Status .Result .Error
	// .Timestamp.
	Template string `yaml:"template"`
}

// NotificationRetry says how often sending a notification is tried again.
type NotificationRetry struct {
	// MaxAttempts is how often sending is tried.
	MaxAttempts int `yaml:"max_attempts" jsonschema:"minimum=1,maximum=100,default=3"`
	// InitialDelay is the longest wait before the second attempt; it doubles with each further one. Each wait is random,
	// from half of that time to the whole, so that what failed together is not repeated together.
	InitialDelay time.Duration `yaml:"initial_delay" jsonschema:"default=1s"`
	// MaxDelay is the longest wait.
	MaxDelay time.Duration `yaml:"max_delay" jsonschema:"default=30s"`
}

// maxNotifications bounds the notifications of an agent: each adds a row to every task.
const maxNotifications = 10

// checkNotifications checks that the agent's notifications have different ids.
func (a *Agent) checkNotifications(c *validation, s document.Location) {
	if len(a.Notifications) > maxNotifications {
		c.addProblem(s, fmt.Sprintf("holds more than %d notifications", maxNotifications))
	}
	ids := map[string]bool{}
	for i, n := range a.Notifications {
		if n == nil || !n.Enabled {
			continue
		}
		if n.ID != "" && ids[n.ID] {
			c.addProblem(s.Item(i).Child("id"), "is the id of another notification of the agent as well: "+shortenText(n.ID))
		}
		ids[n.ID] = true
	}
}

// checkRules checks address, headers and events.
func (n *Notification) checkRules(c *validation, s document.Location) {
	c.checkName(s.Child("id"), n.ID)
	c.checkAddress(s.Child("url"), n.URL)
	c.checkHeaders(s.Child("headers"), n.Headers)
	if len(n.Events) == 0 && c.doc.HasValue(s.Value, "events") {
		c.addProblem(s.Child("events"), "names no event")
	}
	for i, e := range n.Events {
		if slices.Contains(n.Events[:i], e) {
			c.addProblem(s.Child("events").Item(i), "is named before")
		}
	}
}

// checkRules checks the order of the delays.
func (r *NotificationRetry) checkRules(c *validation, s document.Location) {
	if r.InitialDelay <= 0 || r.InitialDelay > r.MaxDelay {
		c.addProblem(s.Child("initial_delay"), "must be more than nothing and at most max_delay")
	}
	if r.MaxDelay > maxRetryDelay {
		c.addProblem(s.Child("max_delay"), fmt.Sprintf("must be at most %v", maxRetryDelay))
	}
}

// maxRetryDelay bounds the wait between two attempts.
const maxRetryDelay = time.Hour
