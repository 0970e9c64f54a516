package config

import (
	"regexp"
	"strconv"
)

const defaultTemperature = 0.7

// Two vendors' newer models refuse a temperature. What they will call their next ones is not known, so it is the older
// ones that are told by their names, wherever gateways put those: Claude up to 4.6, and GPT up to 4.
var (
	claudeForm = regexp.MustCompile(`(?:^|[./:])claude-(?:(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?:[-@:]|$))?`)
	gptForm    = regexp.MustCompile(`(?:^|[./:])(?:gpt-(\d{1,2})|o\d|codex-)`)
)

// acceptsTemperature reports whether a model of this name surely takes any temperature.
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

// refusesTemperature says so of a written temperature that the vendor of a Claude would refuse.
func (l *LLM) refusesTemperature() bool {
	return l.Provider == "anthropic" && l.BaseURL == "" && l.Temperature != nil && *l.Temperature != 1 && !acceptsTemperature(l.Model)
}
