package ops

import (
	"net/http"
	"strings"
	"time"

	"stoa/agentsvc/surface"
	"stoa/billing/usage"
	"stoa/tenancy"
)

// usageParams are the query parameters of the usage endpoints.
var usageParams = []string{"from", "to", "group_by"}

// handleUsage answers an operator with the usage of an app, its charges and its costs.
func (a adminAPI) handleUsage(w http.ResponseWriter, r *http.Request) error {
	app, err := a.apps.LoadApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	return a.writeUsage(w, r, &app, true)
}

// handleAppUsage answers an app with its usage and charges. The platform's costs are left out.
func (a adminAPI) handleAppUsage(w http.ResponseWriter, r *http.Request) error {
	return a.writeUsage(w, r, surface.RequestOf(r).App, false)
}

// writeUsage answers with sums of usage between from and to, grouped by the dimensions of group_by. The default is
// the current month in UTC until now.
func (a adminAPI) writeUsage(w http.ResponseWriter, r *http.Request, app *tenancy.App, costs bool) error {
	now, params := time.Now().UTC(), r.URL.Query()
	var q usage.Query
	var err error
	if q.From, err = parseTime("from", params.Get("from"), time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)); err != nil {
		return err
	}
	// to is exclusive: one millisecond after now includes what has just been recorded.
	if q.To, err = parseTime("to", params.Get("to"), now.Truncate(time.Millisecond).Add(time.Millisecond)); err != nil {
		return err
	}
	// Unknown dimensions are refused by package billing.
	if by := params.Get("group_by"); by != "" {
		q.By = strings.Split(by, ",")
	}
	rows, totals, err := a.billing.Usage.SumUsage(r.Context(), app.ID, app.Plan, q)
	if err != nil {
		return err
	}
	out := make([]map[string]any, len(rows))
	for i, x := range rows {
		out[i] = newSumBody(x, q.By, costs)
	}
	return surface.WriteJSON(w, http.StatusOK, map[string]any{
		"from": surface.FormatTime(q.From), "to": surface.FormatTime(q.To), "rows": out, "totals": newSumBody(totals, nil, costs),
	})
}

// newSumBody returns a sum with its group. Money in one currency is in the members currency, charge and cost; money
// in several is a list in charges. The member unpriced counts usage for which the price book has no price; its
// charge is missing in the sum.
func newSumBody(x usage.Sum, by []string, costs bool) map[string]any {
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
		setMoney(b, usage.ChargedAmount{Currency: x.Currency, Cost: x.Cost, Charge: x.Charge}, costs)
	}
	for _, g := range by {
		switch g {
		case "agent":
			b[g] = x.Agent
		case "model":
			// A model's name is only unique within its provider.
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

// setMoney adds an amount to a body; costs says whether the reader may see the platform's cost.
func setMoney(b map[string]any, c usage.ChargedAmount, costs bool) {
	b["currency"], b["charge"] = c.Currency, int64(c.Charge)
	if costs {
		b["cost"] = int64(c.Cost)
	}
}
