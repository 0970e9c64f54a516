package tenancy

import (
	"strconv"

	"stoa/agentsvc"
)

// traceRatioLabel is the label with the ratio of an app's requests that are traced, from 0 to 1. It is the only label
// with an effect; labels are set by the operator, never by the tenant.
const traceRatioLabel = "trace_ratio"

// TraceRatio returns the ratio of the app's requests that are traced; configured is false if the label is missing or
// invalid, and then the process's own ratio applies.
func (a *App) TraceRatio() (part float64, configured bool) {
	text, configured := a.Labels[traceRatioLabel]
	if !configured {
		return 0, false
	}
	part, err := parseTraceRatio(text)
	return part, err == nil
}

// parseTraceRatio parses a ratio. The negated comparison also refuses NaN.
func parseTraceRatio(text string) (float64, error) {
	part, err := strconv.ParseFloat(text, 64)
	if err != nil || !(part >= 0 && part <= 1) {
		return 0, agentsvc.NewInvalidError("labels."+traceRatioLabel, "must be the part of the app's calls to trace, a number from 0 to 1")
	}
	return part, nil
}

func checkTraceRatio(labels map[string]string) error {
	text, configured := labels[traceRatioLabel]
	if !configured {
		return nil
	}
	_, err := parseTraceRatio(text)
	return err
}
