package billingapi

import (
	"net/http"
	"strings"
	"time"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/response"
	"stoa/billing"
	"stoa/billing/usage"
	"stoa/tenancy"
)

// usageHandler serves usage. It is read-only and used by value.
type usageHandler struct {
	apps    *tenancy.Service
	billing *billing.Service
	maxRows int // see Options.MaxUsageRows
}

const defaultUsageRows = 10_000

// usageParams are the query parameters of the usage endpoints.
var usageParams = []string{"from", "to", "group_by"}

// handleUsage answers an operator with the usage of an app, its charges and its costs.
func (h usageHandler) handleUsage(w http.ResponseWriter, r *http.Request) error {
	app, err := h.apps.LoadApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	return h.writeUsage(w, r, &app, true)
}

// handleAppUsage answers an app with its usage and charges. The platform's costs are left out.
func (h usageHandler) handleAppUsage(w http.ResponseWriter, r *http.Request) error {
	return h.writeUsage(w, r, surface.RequestOf(r).App, false)
}

// writeUsage answers with sums of usage between from and to, grouped by the dimensions of group_by, in JSON or CSV.
func (h usageHandler) writeUsage(w http.ResponseWriter, r *http.Request, app *tenancy.App, costs bool) error {
	q, err := parseUsageQuery(r)
	if err != nil {
		return err
	}
	rows, totals, err := h.billing.Usage.SumUsage(r.Context(), app.ID, app.Plan, q)
	if err != nil {
		return err
	}
	w.Header().Add("Vary", "Accept")
	if acceptsCSV(r) {
		return writeUsageCSV(w, rows, q.By, costs)
	}
	out := make([]map[string]any, len(rows))
	for i, x := range rows {
		out[i] = newSumBody(x, q.By, costs)
	}
	return response.WriteJSON(w, http.StatusOK, map[string]any{
		"from": encode.FormatTime(q.From), "to": encode.FormatTime(q.To), "rows": out, "totals": newSumBody(totals, nil, costs),
	})
}

// handleAllUsage answers an operator with the usage of all apps: a page of apps, by name, with the rows of each, and on
// the first page the totals of all. The page ends before an app whose rows would make more than maxRows.
func (h usageHandler) handleAllUsage(w http.ResponseWriter, r *http.Request) error {
	q, err := parseUsageQuery(r)
	if err != nil {
		return err
	}
	size, err := decode.ParsePageSize(r, tenancy.DefaultPageSize, tenancy.MaxPageSize)
	if err != nil {
		return err
	}
	token := r.URL.Query().Get("page_token")
	page, err := h.apps.ListApps(r.Context(), tenancy.AppQuery{Size: size, Token: token})
	if err != nil {
		return err
	}
	out := []map[string]any{}
	for i, app := range page.Apps {
		rows, _, err := h.billing.Usage.SumUsage(r.Context(), app.ID, app.Plan, q)
		if err != nil {
			return err
		}
		if len(out) > 0 && len(out)+len(rows) > h.maxRows {
			page.Next = page.TokenAfter(i - 1)
			break
		}
		for _, x := range rows {
			b := newSumBody(x, q.By, true)
			b["app"], b["app_id"] = app.Name, app.ID
			out = append(out, b)
		}
	}
	answer := map[string]any{"from": encode.FormatTime(q.From), "to": encode.FormatTime(q.To), "rows": out, "next_page_token": page.Next}
	if token == "" {
		totals, err := h.billing.Usage.SumAllUsage(r.Context(), q)
		if err != nil {
			return err
		}
		answer["totals"] = newSumBody(totals, nil, true)
	}
	return response.WriteJSON(w, http.StatusOK, answer)
}

// parseUsageQuery returns the query of a request. Without from and to it is the current month in UTC until now.
func parseUsageQuery(r *http.Request) (usage.Query, error) {
	now, params := time.Now().UTC(), r.URL.Query()
	var q usage.Query
	var err error
	if q.From, err = decode.ParseTime("from", params.Get("from"), time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)); err != nil {
		return q, err
	}
	// to is exclusive: one millisecond after now includes what has just been recorded.
	if q.To, err = decode.ParseTime("to", params.Get("to"), now.Truncate(time.Millisecond).Add(time.Millisecond)); err != nil {
		return q, err
	}
	// Unknown dimensions are refused by package usage.
	if by := params.Get("group_by"); by != "" {
		q.By = strings.Split(by, ",")
	}
	return q, nil
}

// newSumBody returns a sum with its group. Money in one currency is in the members currency, charge and cost; money
// in several is a list in charges. The member unpriced counts usage that the price book charges nothing or in part; its
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
	b["currency"], b["charge"], b["charge_decimal"] = c.Currency, int64(c.Charge), c.Charge.Decimal(c.Currency)
	if costs {
		b["cost"], b["cost_decimal"] = int64(c.Cost), c.Cost.Decimal(c.Currency)
	}
}
