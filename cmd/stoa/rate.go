package main

import (
	"fmt"
	"strconv"
	"strings"

	"stoa/tenancy"
)

// limitsRecord is what an app may take of the house, as the admin API shows it.
type limitsRecord struct {
	Weight             int64          `json:"weight"`
	MaxConcurrentTasks int64          `json:"max_concurrent_tasks"`
	QueueDepth         int64          `json:"queue_depth"`
	Rate               []tenancy.Rate `json:"rate"`
}

// formatRates returns the rates as --rate takes them.
func (l limitsRecord) formatRates() string {
	texts := make([]string, len(l.Rate))
	for i, r := range l.Rate {
		per := r.Per
		if r.Agent != "" {
			per += "/" + r.Agent
		}
		texts[i] = fmt.Sprintf("%s:%s:%s=%d", per, r.Type, r.Window, r.Limit)
	}
	return strings.Join(texts, ", ")
}

// parseRates reads the arguments of --rate. Whether the words are ones that the server knows, it says itself.
func parseRates(args []string) ([]tenancy.Rate, error) {
	out := make([]tenancy.Rate, len(args))
	for i, arg := range args {
		what, number, ok := strings.Cut(arg, "=")
		words := strings.Split(what, ":")
		n, err := strconv.ParseInt(number, 10, 64)
		if !ok || len(words) != 3 || err != nil {
			return nil, &exitError{code: exitUsage, cause: fmt.Errorf("--rate takes one such as app:count:minute=100 or agent/helper:token:day=50000, it is %q", arg)}
		}
		per, agent, _ := strings.Cut(words[0], "/")
		out[i] = tenancy.Rate{Per: per, Agent: agent, Type: words[1], Window: words[2], Limit: n}
	}
	return out, nil
}
