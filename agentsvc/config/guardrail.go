package config

// Guardrail is a set of checks on an agent's input, output and tool calls.
type Guardrail struct {
	// Enabled turns the checks on.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// Input checks what callers send.
	Input *InputGuardrail `yaml:"input"`
	// Output checks what the agent answers.
	Output *OutputGuardrail `yaml:"output"`
	// Tool checks which tools the agent calls.
	Tool *ToolGuardrail `yaml:"tool"`
}

// InputGuardrail checks what callers send.
type InputGuardrail struct {
	// ChainMode stops at the first check that blocks, or collects what all of them say.
	ChainMode string `yaml:"chain_mode" jsonschema:"enum=fail_fast,enum=collect_all,default=fail_fast"`
	// Length bounds how long a message is.
	Length *LengthCheck `yaml:"length"`
	// Injection looks for attempts to override the instruction.
	Injection *InjectionCheck `yaml:"injection"`
	// Sanitizer cleans the message.
	Sanitizer *Sanitizer `yaml:"sanitizer"`
}

// LengthCheck bounds how long a message is.
type LengthCheck struct {
	// Enabled turns the check on.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// MinLength is the shortest message, in characters.
	MinLength int `yaml:"min_length" jsonschema:"minimum=0"`
	// MaxLength is the longest message, in characters; 0 is no bound.
	MaxLength int `yaml:"max_length" jsonschema:"minimum=0"`
	// Action is what happens when the check strikes.
	Action string `yaml:"action" jsonschema:"enum=allow,enum=block,enum=modify,enum=warn,default=block"`
	// Severity is how bad it is, for logs and metrics.
	Severity string `yaml:"severity"`
}

// InjectionCheck looks for attempts to override the instruction.
type InjectionCheck struct {
	// Enabled turns the check on.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// Patterns are regular expressions (RE2) to look for, besides the built-in ones.
	Patterns []string `yaml:"patterns"`
	// CaseSensitive tells capital from small letters.
	CaseSensitive bool `yaml:"case_sensitive" jsonschema:"default=false"`
	// Action is what happens when the check strikes.
	Action string `yaml:"action" jsonschema:"enum=allow,enum=block,enum=modify,enum=warn,default=block"`
	// Severity is how bad it is, for logs and metrics.
	Severity string `yaml:"severity"`
}

// Sanitizer cleans a message.
type Sanitizer struct {
	// Enabled turns the cleaning on.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// TrimWhitespace removes white space at both ends.
	TrimWhitespace bool `yaml:"trim_whitespace" jsonschema:"default=false"`
	// NormalizeUnicode brings letters to one form (NFC).
	NormalizeUnicode bool `yaml:"normalize_unicode" jsonschema:"default=false"`
	// StripHTML removes HTML tags.
	StripHTML bool `yaml:"strip_html" jsonschema:"default=false"`
	// MaxLength cuts the message to so many characters; 0 is no cut.
	MaxLength int `yaml:"max_length" jsonschema:"minimum=0"`
}

// OutputGuardrail checks what an agent answers.
type OutputGuardrail struct {
	// ChainMode stops at the first check that blocks, or collects what all of them say.
	ChainMode string `yaml:"chain_mode" jsonschema:"enum=fail_fast,enum=collect_all,default=fail_fast"`
	// PII looks for personal data.
	PII *PIICheck `yaml:"pii"`
	// Content looks for words that must not be said.
	Content *ContentCheck `yaml:"content"`
}

// PIICheck looks for personal data.
type PIICheck struct {
	// Enabled turns the check on.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// DetectEmail looks for mail addresses.
	DetectEmail bool `yaml:"detect_email" jsonschema:"default=false"`
	// DetectPhone looks for telephone numbers.
	DetectPhone bool `yaml:"detect_phone" jsonschema:"default=false"`
	// DetectSSN looks for social security numbers.
	DetectSSN bool `yaml:"detect_ssn" jsonschema:"default=false"`
	// DetectCreditCard looks for card numbers.
	DetectCreditCard bool `yaml:"detect_credit_card" jsonschema:"default=false"`
	// RedactMode is what stands in the place of what was found.
	RedactMode string `yaml:"redact_mode" jsonschema:"enum=mask,enum=remove,enum=hash,default=mask"`
	// Action is what happens when the check strikes.
	Action string `yaml:"action" jsonschema:"enum=allow,enum=block,enum=modify,enum=warn,default=modify"`
	// Severity is how bad it is, for logs and metrics.
	Severity string `yaml:"severity"`
}

// ContentCheck looks for words that must not be said.
type ContentCheck struct {
	// Enabled turns the check on.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// BlockedKeywords are words to look for.
	BlockedKeywords []string `yaml:"blocked_keywords"`
	// BlockedPatterns are regular expressions (RE2) to look for.
	BlockedPatterns []string `yaml:"blocked_patterns"`
	// Action is what happens when the check strikes.
	Action string `yaml:"action" jsonschema:"enum=allow,enum=block,enum=modify,enum=warn,default=block"`
	// Severity is how bad it is, for logs and metrics.
	Severity string `yaml:"severity"`
}

// ToolGuardrail checks which tools an agent calls.
type ToolGuardrail struct {
	// ChainMode stops at the first check that blocks, or collects what all of them say.
	ChainMode string `yaml:"chain_mode" jsonschema:"enum=fail_fast,enum=collect_all,default=fail_fast"`
	// Authorization lists what may and may not be called.
	Authorization *AuthorizationCheck `yaml:"authorization"`
}

// AuthorizationCheck lists which tools may and may not be called.
type AuthorizationCheck struct {
	// Enabled turns the check on.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// AllowedTools are patterns with * of tools that may be called. Without them, all.
	AllowedTools []string `yaml:"allowed_tools"`
	// BlockedTools are patterns with * of tools that may not be called.
	BlockedTools []string `yaml:"blocked_tools"`
	// Action is what happens when the check strikes.
	Action string `yaml:"action" jsonschema:"enum=allow,enum=block,enum=modify,enum=warn,default=block"`
	// Severity is how bad it is, for logs and metrics.
	Severity string `yaml:"severity"`
}

func (x *InjectionCheck) check(c *checks, s spot) {
	c.patterns(s.child("patterns"), x.Patterns)
}

func (x *ContentCheck) check(c *checks, s spot) {
	c.patterns(s.child("blocked_patterns"), x.BlockedPatterns)
}
