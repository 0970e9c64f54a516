package tenancy

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"stoa/agentsvc"
)

// Rate is a rate limit that the operator sets for an app. Package ratelimit applies it. Its JSON is the stored form.
type Rate struct {
	// Per is what is counted together: "app", "agent" or "key".
	Per string `json:"per"`
	// Agent restricts a rate per agent to one agent; "" limits each agent separately.
	Agent string `json:"agent,omitempty"`
	// Type is "count" for requests or "token" for tokens of models.
	Type string `json:"type"`
	// Window is the calendar window, in UTC: "minute", "hour", "day", "week" or "month".
	Window string `json:"window"`
	// Limit is the largest count in a window, 1 to maxRate.
	Limit int64 `json:"limit"`
}

// The bounds of rates.
const (
	maxRates = 50
	maxRate  = 1_000_000_000_000
)

// The accepted values of a rate's fields.
var (
	ratePer    = []string{"app", "agent", "key"}
	rateType   = []string{"count", "token"}
	rateWindow = []string{"minute", "hour", "day", "week", "month"}
	rateAgent  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)
)

// checkRates returns an error with [agentsvc.CodeInvalid] for the first invalid rate; name is the path of the list. Two
// rates that differ only in their limit are refused, because they would share one counter.
func checkRates(name string, rates []Rate) error {
	if len(rates) > maxRates {
		return agentsvc.NewInvalidError(name, "there are %d, %d are allowed", len(rates), maxRates)
	}
	seen := map[Rate]bool{}
	for i, r := range rates {
		field := rateField(name, i)
		for _, word := range []struct {
			name, value string
			of          []string
		}{{"per", r.Per, ratePer}, {"type", r.Type, rateType}, {"window", r.Window, rateWindow}} {
			if !slices.Contains(word.of, word.value) {
				return agentsvc.NewInvalidError(field+"."+word.name, "must be one of %s", strings.Join(word.of, ", "))
			}
		}
		switch {
		case r.Agent != "" && r.Per != "agent":
			return agentsvc.NewInvalidError(field+".agent", "belongs to per agent only")
		case r.Agent != "" && !rateAgent.MatchString(r.Agent):
			return agentsvc.NewInvalidError(field+".agent", "must be the name of an agent")
		case r.Limit < 1 || r.Limit > maxRate:
			return agentsvc.NewInvalidError(field+".limit", "must be 1 to %d", int64(maxRate))
		}
		if r.Limit = 0; seen[r] {
			return agentsvc.NewInvalidError(field, "duplicates an earlier entry, apart from the limit")
		}
		seen[r] = true
	}
	return nil
}

// rateField returns the path of the i-th rate in the list called name.
func rateField(name string, i int) string { return fmt.Sprintf("%s[%d]", name, i) }

// noRates is the value of the column rates for an app without rates.
const noRates = "[]"

// encodeRates returns the value of the column rates, a JSON array.
func encodeRates(rates []Rate) (string, error) {
	if len(rates) == 0 {
		return noRates, nil
	}
	raw, err := json.Marshal(rates)
	return string(raw), err
}

// decodeRates parses a value of the column rates.
func decodeRates(document string) (rates []Rate, err error) {
	if document == noRates {
		return nil, nil
	}
	err = json.Unmarshal([]byte(document), &rates)
	return rates, err
}
