package tool

import "time"

// Settings are what a configuration says about a tool, whatever its kind. The zero value says nothing.
type Settings struct {
	Timeout    time.Duration // of one call; the set's if zero
	Idempotent *bool         // whether a call may run again, for a tool that cannot know; its own word if nil
	Approval   Approval
}

// With returns t under settings.
func With(t Tool, settings Settings) Tool {
	return settled{t, settings}
}

// Around returns what around makes of t, under the settings that t has.
func Around(t Tool, around func(Tool) Tool) Tool {
	if s, ok := t.(settled); ok {
		s.Tool = around(s.Tool)
		return s
	}
	return around(t)
}

// settled is a tool under settings.
type settled struct {
	Tool
	settings Settings
}

func (s settled) Idempotent() bool {
	if s.settings.Idempotent != nil {
		return *s.settings.Idempotent
	}
	return s.Tool.Idempotent()
}

// timeout is how long a call of t may take.
func timeout(t Tool, usual time.Duration) time.Duration {
	if s, ok := t.(settled); ok && s.settings.Timeout > 0 {
		return s.settings.Timeout
	}
	return usual
}
