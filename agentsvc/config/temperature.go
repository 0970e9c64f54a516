package config

import (
	"regexp"
	"strconv"
)

// defaultTemperature is the temperature of models that accept any, if the document sets none.
const defaultTemperature = 0.7

// claudeForm and gptForm recognise models of two vendors whose newer models refuse a temperature. The names of future
// models are unknown, so that the older ones that accept it are recognised, also behind a gateway's prefix: Claude up
// to 4.6, and GPT up to 4.
var (
	claudeForm = regexp.MustCompile(`(?:^|[./:])claude-(?:(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?:[-@:]|$))?`)
	gptForm    = regexp.MustCompile(`(?:^|[./:])(?:gpt-(\d{1,2})|o\d|codex-)`)
)

// acceptsTemperature reports whether a model of this name certainly accepts any temperature.
func acceptsTemperature(model string) bool {
	if v := claudeForm.FindStringSubmatch(model); v != nil {
		major, err := strconv.Atoi(v[1])
		minor, _ := strconv.Atoi(v[2])
		return err == nil && (major < 4 || major == 4 && minor <= 6)
	}
	if v := gptForm.FindStringSubmatch(model); v != nil {
		major, err := strconv.Atoi(v[1])
		return err == nil && major <= 4
	}
	return true
}

// refusesTemperature reports whether the document sets a temperature that Anthropic's API refuses for this model.
func (l *LLM) refusesTemperature() bool {
	return l.Provider == "anthropic" && l.BaseURL == "" && l.Temperature != nil && *l.Temperature != 1 && !acceptsTemperature(l.Model)
}
