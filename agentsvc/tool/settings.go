package tool

import "time"

// Settings are what a configuration says about a tool, whatever its kind. The zero value says nothing.
type Settings struct {
	Timeout    time.Duration // of one call; the set's if zero
	Idempotent *bool         // whether a call may run again, for a tool that cannot know; its own word if nil
	Approval   ApprovalOptions
}

// WithSettings returns t under settings.
func WithSettings(t Tool, settings Settings) Tool {
	return configuredTool{t, settings}
}

// Decorate returns what around makes of t, under the settings that t has.
func Decorate(t Tool, decorator func(Tool) Tool) Tool {
	if s, ok := t.(configuredTool); ok {
		s.Tool = decorator(s.Tool)
		return s
	}
	return decorator(t)
}

// configuredTool is a tool under settings.
type configuredTool struct {
	Tool
	settings Settings
}

func (s configuredTool) IsIdempotent() bool {
	if s.settings.Idempotent != nil {
		return *s.settings.Idempotent
	}
	return s.Tool.IsIdempotent()
}

// callTimeout is how long a call of t may take.
func callTimeout(t Tool, defaultTimeout time.Duration) time.Duration {
	if s, ok := t.(configuredTool); ok && s.settings.Timeout > 0 {
		return s.settings.Timeout
	}
	return defaultTimeout
}
