package tenancy

import "strconv"

// TraceRatioLabel is the label that says which part of an app's calls is traced, from 0 to 1. It means that to nobody but
// the operator, who alone sets labels; all others mean what their operator wants them to.
const TraceRatioLabel = "trace_ratio"

// TraceRatio returns the part of the app's calls that is traced, if the app has a part of its own.
func (a *App) TraceRatio() (part float64, configured bool) {
	text, configured := a.Labels[TraceRatioLabel]
	if !configured {
		return 0, false
	}
	part, err := parseTraceRatio(text)
	return part, err == nil
}

func parseTraceRatio(text string) (float64, error) {
	part, err := strconv.ParseFloat(text, 64)
	if err != nil || !(part >= 0 && part <= 1) {
		return 0, invalidField("labels."+TraceRatioLabel, "must be the part of the app's calls to trace, a number from 0 to 1")
	}
	return part, nil
}

func checkTraceRatio(labels map[string]string) error {
	text, configured := labels[TraceRatioLabel]
	if !configured {
		return nil
	}
	_, err := parseTraceRatio(text)
	return err
}
