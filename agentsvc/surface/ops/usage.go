package ops

import (
	"net/http"
	"strings"
	"time"

	"stoa/agentsvc/surface"
	"stoa/billing"
	"stoa/tenancy"
)

// usageNames are what a question for usage may hold.
var usageNames = []string{"from", "to", "group_by"}

// usage answers with what an app has used.
func (a admin) usage(w http.ResponseWriter, r *http.Request) error {
	app, err := a.apps.Get(r.Context(), surface.Param(r, "app"))
	if err != nil {
		return err
	}
	return a.writeUsage(w, r, &app, true)
}

// ownUsage answers an app with what it has used, and what that is charged; what it costs the platform is not its business.
func (a admin) ownUsage(w http.ResponseWriter, r *http.Request) error {
	return a.writeUsage(w, r, surface.VisitOf(r).App, false)
}

func (a admin) writeUsage(w http.ResponseWriter, r *http.Request, app *tenancy.App, costs bool) error {
	now, asked := time.Now().UTC(), r.URL.Query()
	var q billing.Query
	var err error
	if q.From, err = parseTime("from", asked.Get("from"), time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)); err != nil {
		return err
	}
	if q.To, err = parseTime("to", asked.Get("to"), now.Truncate(time.Millisecond).Add(time.Millisecond)); err != nil {
		return err
	}
	if by := asked.Get("group_by"); by != "" {
		q.By = strings.Split(by, ",")
	}
	rows, totals, err := a.billing.Usage(r.Context(), app.ID, app.Plan, q)
	if err != nil {
		return err
	}
	out := make([]map[string]any, len(rows))
	for i, x := range rows {
		out[i] = sumBody(x, q.By, costs)
	}
	return surface.WriteJSON(w, http.StatusOK, map[string]any{
		"from": surface.Timestamp(q.From), "to": surface.Timestamp(q.To), "rows": out, "totals": sumBody(totals, nil, costs),
	})
}

// sumBody is a sum with what it is the sum of. Money of several currencies is a list.
func sumBody(x billing.Sum, by []string, costs bool) map[string]any {
	b := map[string]any{
		"input_tokens": x.InputTokens, "output_tokens": x.OutputTokens, "cache_read_tokens": x.CacheReadTokens, "cache_write_tokens": x.CacheWriteTokens,
		"reasoning_tokens": x.ReasoningTokens, "model_calls": x.ModelCalls, "tool_calls": x.ToolCalls, "runs": x.Runs, "run_seconds": x.RunTime.Seconds(),
		"embeddings": x.Embeddings, "stored_bytes": x.StoredBytes, "unpriced": x.Unpriced,
	}
	charges := make([]map[string]any, len(x.Charges))
	for i, c := range x.Charges {
		charges[i] = map[string]any{}
		setMoney(charges[i], c, costs)
	}
	if len(charges) > 0 {
		b["charges"] = charges
	} else {
		setMoney(b, billing.Charged{Currency: x.Currency, Cost: x.Cost, Charge: x.Charge}, costs)
	}
	for _, g := range by {
		switch g {
		case "agent":
			b[g] = x.Agent
		case "model":
			b[g], b["provider"] = x.Model, x.Provider
		case "user":
			b[g] = x.User
		case "key":
			b[g] = x.Key
		case "day":
			b[g] = x.Day.Format(time.DateOnly)
		}
	}
	return b
}

// setMoney puts money into a body.
func setMoney(b map[string]any, c billing.Charged, costs bool) {
	b["currency"], b["charge"] = c.Currency, int64(c.Charge)
	if costs {
		b["cost"] = int64(c.Cost)
	}
}
