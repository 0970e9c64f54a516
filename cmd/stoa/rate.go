package main

import (
	"fmt"
	"strconv"
	"strings"
)

// limitsRecord is an app's limits in the JSON of the admin API.
type limitsRecord struct {
	// Weight is the app's share in the queue's fair scheduling, relative to other apps.
	Weight             int64        `json:"weight"`
	MaxConcurrentTasks int64        `json:"max_concurrent_tasks"` // 0 = unlimited
	QueueDepth         int64        `json:"queue_depth"`          // tasks that may wait for a worker
	Rate               []rateRecord `json:"rate"`
}

// rateRecord is a rate limit in the JSON of the admin API.
type rateRecord struct {
	Per    string `json:"per"` // app, agent or key
	Agent  string `json:"agent,omitempty"`
	Type   string `json:"type"`   // count or token
	Window string `json:"window"` // minute, hour, day, week or month
	Limit  int64  `json:"limit"`
}

// formatRates returns the rates in the syntax of --rate, separated by commas.
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

// parseRates parses the arguments of --rate, PER[/AGENT]:TYPE:WINDOW=LIMIT. It checks the syntax only; the server
// validates the values, so that the client need not know them.
func parseRates(args []string) ([]rateRecord, error) {
	out := make([]rateRecord, len(args))
	for i, arg := range args {
		what, number, ok := strings.Cut(arg, "=")
		// PER[/AGENT], TYPE, WINDOW
		words := strings.Split(what, ":")
		n, err := strconv.ParseInt(number, 10, 64)
		if !ok || len(words) != 3 || err != nil {
			return nil, &exitError{code: exitUsage, cause: fmt.Errorf("--rate takes one such as app:count:minute=100 or agent/helper:token:day=50000, it is %q", arg)}
		}
		per, agent, _ := strings.Cut(words[0], "/")
		out[i] = rateRecord{Per: per, Agent: agent, Type: words[1], Window: words[2], Limit: n}
	}
	return out, nil
}
