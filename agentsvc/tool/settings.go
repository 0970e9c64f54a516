package tool

import "time"

// Settings are the configured properties of a tool of any kind. The zero value changes nothing.
type Settings struct {
	// Timeout bounds one call, 0 = the set's.
	Timeout time.Duration
	// Idempotent overrides the tool's IsIdempotent; nil: it does not.
	Idempotent *bool
	Approval   ApprovalOptions
}

// WithSettings returns t with settings applied.
func WithSettings(t Tool, settings Settings) Tool {
	return configuredTool{t, settings}
}

// Decorate returns decorator(t), under the settings of t: a decorator wraps the tool within its settings, so that
// [Set.ApprovalFor] and timeouts still find them.
func Decorate(t Tool, decorator func(Tool) Tool) Tool {
	if s, ok := t.(configuredTool); ok {
		s.Tool = decorator(s.Tool)
		return s
	}
	return decorator(t)
}

// configuredTool is a tool with settings. It is always the outermost wrapper, see Decorate.
type configuredTool struct {
	Tool
	settings Settings
}

// IsIdempotent implements [Tool].
func (t configuredTool) IsIdempotent() bool {
	if t.settings.Idempotent != nil {
		return *t.settings.Idempotent
	}
	return t.Tool.IsIdempotent()
}

// callTimeout returns the bound of one call of t.
func callTimeout(t Tool, defaultTimeout time.Duration) time.Duration {
	if s, ok := t.(configuredTool); ok && s.settings.Timeout > 0 {
		return s.settings.Timeout
	}
	return defaultTimeout
}
