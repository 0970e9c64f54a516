package tenancy

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Rate is how much an app's callers may ask for in a time, as its operator says.
type Rate struct {
	Per    string `json:"per"`             // app, agent or key
	Agent  string `json:"agent,omitempty"` // the only one, where it is per agent; "" = each on its own
	Type   string `json:"type"`            // count or token
	Window string `json:"window"`          // minute, hour, day, week or month
	Limit  int64  `json:"limit"`
}

// The bounds of rates, and their words.
const (
	maxRates = 50
	maxRate  = 1_000_000_000_000
)

var (
	ratePer    = []string{"app", "agent", "key"}
	rateType   = []string{"count", "token"}
	rateWindow = []string{"minute", "hour", "day", "week", "month"}
	rateAgent  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)
)

// checkRates says what is wrong with rates, which are called name.
func checkRates(name string, rates []Rate) error {
	if len(rates) > maxRates {
		return invalidField(name, "there are %d, %d are allowed", len(rates), maxRates)
	}
	seen := map[Rate]bool{}
	for i, r := range rates {
		field := rateField(name, i)
		for _, word := range []struct {
			name, value string
			of          []string
		}{{"per", r.Per, ratePer}, {"type", r.Type, rateType}, {"window", r.Window, rateWindow}} {
			if !slices.Contains(word.of, word.value) {
				return invalidField(field+"."+word.name, "must be one of %s", strings.Join(word.of, ", "))
			}
		}
		switch {
		case r.Agent != "" && r.Per != "agent":
			return invalidField(field+".agent", "belongs to per agent only")
		case r.Agent != "" && !rateAgent.MatchString(r.Agent):
			return invalidField(field+".agent", "must be the name of an agent")
		case r.Limit < 1 || r.Limit > maxRate:
			return invalidField(field+".limit", "must be 1 to %d", int64(maxRate))
		}
		if r.Limit = 0; seen[r] {
			return invalidField(field, "says the same as one before it with another limit, or with the same")
		}
		seen[r] = true
	}
	return nil
}

func rateField(name string, i int) string { return fmt.Sprintf("%s[%d]", name, i) }

// noRates is how the database holds none.
const noRates = "[]"

// encodeRates returns rates as the database holds them.
func encodeRates(rates []Rate) (string, error) {
	if len(rates) == 0 {
		return noRates, nil
	}
	raw, err := json.Marshal(rates)
	return string(raw), err
}

// decodeRates reads what encodeRates returned.
func decodeRates(document string) (rates []Rate, err error) {
	if document == noRates {
		return nil, nil
	}
	err = json.Unmarshal([]byte(document), &rates)
	return rates, err
}
