package config

import (
	"strings"

	"stoa/agentsvc/config/document"
	"stoa/agentsvc/pattern"
)

// Guardrail is a set of checks on an agent's input, output and tool calls.
type Guardrail struct {
	// Enabled turns the checks on.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// Mode applies the actions of the checks (enforce), or only logs and counts them (shadow).
	Mode string `yaml:"mode" jsonschema:"enum=enforce,enum=shadow,default=enforce"`
	// Input checks what callers send.
	Input *InputGuardrail `yaml:"input"`
	// Output checks what the agent answers.
	Output *OutputGuardrail `yaml:"output"`
	// Tool checks which tools the agent calls.
	Tool *ToolGuardrail `yaml:"tool"`
}

// InputGuardrail checks what callers send.
type InputGuardrail struct {
	// ChainMode stops at the first check that blocks, or runs all checks and takes the strictest action.
	ChainMode string `yaml:"chain_mode" jsonschema:"enum=fail_fast,enum=collect_all,default=fail_fast"`
	// Length bounds how long a message is.
	Length *LengthCheck `yaml:"length"`
	// Injection looks for attempts to override the instruction.
	Injection *InjectionCheck `yaml:"injection"`
	// Sanitizer cleans the message, before the other checks look at it.
	Sanitizer *Sanitizer `yaml:"sanitizer"`
}

// LengthCheck bounds how long a message is.
type LengthCheck struct {
	// Enabled turns the check on.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// MinLength is the shortest message, in characters of all its texts together.
	MinLength int `yaml:"min_length" jsonschema:"minimum=0"`
	// MaxLength is the longest message, in characters; 0 is no bound. The action modify cuts it there.
	MaxLength int `yaml:"max_length" jsonschema:"minimum=0"`
	// Action is what happens when the check finds something.
	Action string `yaml:"action" jsonschema:"enum=allow,enum=block,enum=modify,enum=warn,default=block"`
	// Severity is how serious it is; it decides the level of the log line.
	Severity string `yaml:"severity" jsonschema:"enum=low,enum=medium,enum=high,enum=critical,default=medium"`
}

// InjectionCheck looks for attempts to override the instruction.
type InjectionCheck struct {
	// Enabled turns the check on.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// Patterns are regular expressions (RE2) to look for, besides the built-in ones.
	Patterns []string `yaml:"patterns"`
	// CaseSensitive makes `patterns` distinguish capital from small letters.
	CaseSensitive bool `yaml:"case_sensitive" jsonschema:"default=false"`
	// Action is what happens when the check finds something.
	Action string `yaml:"action" jsonschema:"enum=allow,enum=block,enum=modify,enum=warn,default=block"`
	// Severity is how serious it is; it decides the level of the log line.
	Severity string `yaml:"severity" jsonschema:"enum=low,enum=medium,enum=high,enum=critical,default=medium"`
}

// Sanitizer cleans a message.
type Sanitizer struct {
	// Enabled turns the cleaning on.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// TrimWhitespace removes white space at both ends.
	TrimWhitespace bool `yaml:"trim_whitespace" jsonschema:"default=false"`
	// NormalizeUnicode converts letters to one form (NFC) and drops characters that hide text from people.
	NormalizeUnicode bool `yaml:"normalize_unicode" jsonschema:"default=false"`
	// StripHTML removes HTML tags, comments, scripts and styles.
	StripHTML bool `yaml:"strip_html" jsonschema:"default=false"`
	// MaxLength cuts the message to so many characters; 0 is no cut.
	MaxLength int `yaml:"max_length" jsonschema:"minimum=0"`
}

// OutputGuardrail checks what an agent answers.
type OutputGuardrail struct {
	// ChainMode stops at the first part that blocks, or runs all checks on the whole answer, which is then not
	// streamed, and takes the strictest action.
	ChainMode string `yaml:"chain_mode" jsonschema:"enum=fail_fast,enum=collect_all,default=fail_fast"`
	// PII looks for personal data.
	PII *PIICheck `yaml:"pii"`
	// Content looks for words that an answer must not contain.
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
	// RedactMode is how matches are replaced.
	RedactMode string `yaml:"redact_mode" jsonschema:"enum=mask,enum=remove,enum=hash,default=mask"`
	// Action is what happens when the check finds something.
	Action string `yaml:"action" jsonschema:"enum=allow,enum=block,enum=modify,enum=warn,default=modify"`
	// Severity is how serious it is; it decides the level of the log line.
	Severity string `yaml:"severity" jsonschema:"enum=low,enum=medium,enum=high,enum=critical,default=medium"`
}

// ContentCheck looks for words that an answer must not contain.
type ContentCheck struct {
	// Enabled turns the check on.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// BlockedKeywords are words to look for, in capital or small letters.
	BlockedKeywords []string `yaml:"blocked_keywords"`
	// BlockedPatterns are regular expressions (RE2) to look for.
	BlockedPatterns []string `yaml:"blocked_patterns"`
	// Action is what happens when the check finds something.
	Action string `yaml:"action" jsonschema:"enum=allow,enum=block,enum=modify,enum=warn,default=block"`
	// Severity is how serious it is; it decides the level of the log line.
	Severity string `yaml:"severity" jsonschema:"enum=low,enum=medium,enum=high,enum=critical,default=medium"`
}

// ToolGuardrail checks which tools an agent calls.
type ToolGuardrail struct {
	// ChainMode stops at the first check that blocks, or runs all checks and takes the strictest action.
	// With one check it is the same.
	ChainMode string `yaml:"chain_mode" jsonschema:"enum=fail_fast,enum=collect_all,default=fail_fast"`
	// Authorization lists what may and may not be called.
	Authorization *AuthorizationCheck `yaml:"authorization"`
}

// AuthorizationCheck lists which tools may and may not be called.
type AuthorizationCheck struct {
	// Enabled turns the check on.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// AllowedTools are names of tools that may be called, in which * matches any text. Without the key, all may.
	AllowedTools []string `yaml:"allowed_tools"`
	// BlockedTools are names of tools that may not be called, in which * matches any text; they override `allowed_tools`.
	BlockedTools []string `yaml:"blocked_tools"`
	// Action is what happens when the check finds something.
	Action string `yaml:"action" jsonschema:"enum=allow,enum=block,enum=warn,default=block"`
	// Severity is how serious it is; it decides the level of the log line.
	Severity string `yaml:"severity" jsonschema:"enum=low,enum=medium,enum=high,enum=critical,default=medium"`
}

// checkRules checks that the lengths can be satisfied by the action.
func (l *LengthCheck) checkRules(c *validation, s document.Location) {
	switch {
	case l.MaxLength > 0 && l.MinLength > l.MaxLength:
		c.addProblem(s.Child("min_length"), "is more than max_length")
	case l.MinLength > 0 && l.Action == "modify":
		c.addProblem(s.Child("min_length"), "cannot go with the action modify: what is too short cannot be lengthened")
	}
}

// checkRules checks the additional patterns.
func (i *InjectionCheck) checkRules(c *validation, s document.Location) {
	c.checkMatchingPatterns(s.Child("patterns"), i.Patterns)
	if len(i.Patterns) > 0 {
		c.compiled.Instructions += builtInInstructions
	}
}

// checkRules refuses a check that is on and detects nothing.
func (p *PIICheck) checkRules(c *validation, s document.Location) {
	if p.Enabled && !p.DetectEmail && !p.DetectPhone && !p.DetectSSN && !p.DetectCreditCard {
		c.addProblem(s, "looks for nothing: turn on detect_email, detect_phone, detect_ssn or detect_credit_card")
	}
}

// checkRules refuses a check that is on and detects nothing, and checks its patterns and words.
func (cc *ContentCheck) checkRules(c *validation, s document.Location) {
	if cc.Enabled && len(cc.BlockedKeywords)+len(cc.BlockedPatterns) == 0 {
		c.addProblem(s, "looks for nothing: list blocked_keywords or blocked_patterns")
	}
	c.checkMatchingPatterns(s.Child("blocked_patterns"), cc.BlockedPatterns)
	for i, word := range cc.BlockedKeywords {
		c.compiled.Instructions += len(word)
		if strings.TrimSpace(word) == "" {
			c.addProblem(s.Child("blocked_keywords").Item(i), "is empty")
		}
	}
}

// builtInInstructions is the size of the built-in phrases, which are compiled together with the patterns of a document. A
// guardrail without patterns shares them.
const builtInInstructions = 1_000

// checkRules refuses a check that is on and has no list.
func (a *AuthorizationCheck) checkRules(c *validation, s document.Location) {
	if a.Enabled && a.AllowedTools == nil && a.BlockedTools == nil {
		c.addProblem(s, "decides nothing: list allowed_tools or blocked_tools")
	}
}

// checkMatchingPatterns checks that every item of the list at s is a regular expression that does not match the empty
// text: it would match in every message.
func (val *validation) checkMatchingPatterns(s document.Location, list []string) {
	val.checkPatterns(s, list)
	if val.compiled.Instructions > maxInstructions {
		return // checkCompiled refuses the document: compiling the rest as well would take seconds
	}
	for i, text := range list {
		if p, err := pattern.Compile(text); err == nil && p.MatchesEmpty() {
			val.addProblem(s.Item(i), "matches the empty text, so it would match everywhere")
		}
	}
}
