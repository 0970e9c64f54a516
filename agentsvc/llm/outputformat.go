package llm

import "strings"

// OutputFormat is the JSON format in which a model answers. It is read-only.
type OutputFormat struct {
	// Name names the format for the model; it may be empty and have any characters.
	Name string
	// Schema is the JSON Schema of the answer.
	Schema map[string]any
	// Strict asks the vendor to enforce the schema where enforcing is optional.
	Strict bool
	// Prompt describes the format in words, for models without a mode of their own for it.
	Prompt string
}

// IsObject reports whether the schema is that of an object. Some vendors' modes take no other.
func (f *OutputFormat) IsObject() bool { return f != nil && f.Schema["type"] == "object" }

// maxFormatName is the length of a format's name that all vendors accept, in bytes.
const maxFormatName = 64

// FormatName returns the name in the form that vendors accept: letters, digits, '_' and '-'. It is never empty.
func (f *OutputFormat) FormatName() string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, f.Name)
	if name == "" {
		return "answer"
	}
	return name[:min(len(name), maxFormatName)]
}

// SystemText returns the system prompt with the description of the output format, for a model that has no mode of its
// own for formats.
func (r Request) SystemText() string {
	switch {
	case r.Output == nil:
		return r.System
	case r.System == "":
		return r.Output.Prompt
	}
	return r.System + "\n\n" + r.Output.Prompt
}

// ReasonFormatRefused is the reason of an [Error] where a vendor's server refuses the schema of an output format.
const ReasonFormatRefused = "it refuses the schema of structured_output: simplify the schema"
