package invoice

import (
	"cmp"
	"encoding/csv"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"stoa/billing/amount"
	"stoa/billing/spreadsheet"
)

// csvColumns are the columns of an invoice's table before those of the meters, which have the quantities of a line by meter. A
// later version may add columns at the end.
var csvColumns = []string{
	"invoice", "number", "status", "app", "from", "to", "timezone", "row", "description", "usage", "quantity", "included", "per", "price", "late", "unpriced", "currency", "amount",
	"kind", "provider", "model", "price_version", "month", "estimated", "meter",
}

// WriteCSV writes the invoice as CSV: one record for each line, credit use, rounding, net amount, tax and total, and one with
// the number of calls without a price, or charged in part, if there are any. Amounts are decimal. In each currency the lines, credits and rounding
// sum to net, and net and the taxes to the total.
func (inv Invoice) WriteCSV(w io.Writer) error {
	columns := slices.Concat(csvColumns, amount.Meters)
	out := csv.NewWriter(w)
	err := out.Write(columns)
	row := func(cells map[string]string) {
		record := make([]string, len(columns))
		for i, name := range columns {
			record[i] = spreadsheet.EscapeFormula(cells[name])
		}
		err = cmp.Or(err, out.Write(record))
	}
	about := func(kind, text string) map[string]string {
		return map[string]string{
			"invoice": inv.ID, "number": inv.formatNumber(), "status": string(inv.Status), "app": inv.App, "from": inv.Period.From.Format(time.RFC3339),
			"to": inv.Period.To.Format(time.RFC3339), "timezone": inv.Period.Timezone, "row": kind, "description": text,
		}
	}
	for _, l := range inv.Lines {
		cells := about("line", l.Description())
		l.addCells(cells)
		row(cells)
	}
	if inv.UnpricedCalls > 0 {
		cells := about("unpriced", "calls without a price or charged in part")
		cells["quantity"], cells["unpriced"] = strconv.FormatInt(inv.UnpricedCalls, 10), "true"
		row(cells)
	}
	amountRow := func(kind, text, currency string, m amount.Money) {
		cells := about(kind, text)
		cells["currency"], cells["amount"] = currency, m.Decimal(currency)
		row(cells)
	}
	for _, c := range inv.Credits {
		amountRow("credit", c.Credit, c.Currency, -c.Amount)
	}
	for _, t := range inv.Totals {
		amountRow("rounding", "carried to the next invoice, less what was carried to this one", t.Currency, -t.rounding())
	}
	for _, t := range inv.Totals {
		amountRow("net", "charges less credits, rounded", t.Currency, t.Net)
	}
	for _, t := range inv.Taxes {
		amountRow("tax", t.Description(), t.Currency, t.Amount)
	}
	for _, t := range inv.Totals {
		amountRow("total", "due", t.Currency, t.Due)
	}
	out.Flush()
	return cmp.Or(err, out.Error())
}

// addCells adds what the line charges to the cells of its record. The quantity of a plan's line is not in the column of its
// meter: the lines of the usage have it there.
func (l Line) addCells(cells map[string]string) {
	if l.Kind == PlanLine {
		cells["quantity"], cells["included"] = strconv.FormatInt(l.Quantity, 10), strconv.FormatInt(l.Included, 10)
		if l.Per > 0 {
			cells["per"], cells["price"] = strconv.FormatInt(l.Per, 10), l.Amount.Decimal(l.Currency)
		}
	}
	cells["usage"], cells["currency"], cells["amount"] = l.formatUsage(), l.Currency, l.formatCharge()
	cells["late"], cells["unpriced"], cells["estimated"] = strconv.FormatBool(l.Late), strconv.FormatBool(l.Unpriced), strconv.FormatBool(l.Estimated)
	cells["kind"], cells["provider"], cells["model"] = string(l.Kind), l.Provider, l.Model
	cells["price_version"], cells["month"], cells["meter"] = l.PriceVersion, l.Month, l.Meter
	for meter, n := range l.Usage {
		cells[meter] = strconv.FormatInt(n, 10)
	}
}

// Description returns what the line charges, in words.
func (l Line) Description() string {
	var parts []string
	switch l.Kind {
	case PlanLine:
		parts = append(parts, "plan: "+strings.ReplaceAll(l.Meter, "_", " "))
	case BaseFeeLine:
		return "base fee of plan " + l.Plan
	case amount.ModelCall, amount.Embedding:
		parts = append(parts, string(l.Kind)+" "+l.Provider+"/"+l.Model)
	default:
		parts = append(parts, map[amount.Kind]string{amount.ToolCall: "tool calls", amount.Run: "runs", amount.Storage: "storage"}[l.Kind])
	}
	for _, note := range []struct {
		set  bool
		text string
	}{{l.Late, l.formatLate()}, {l.Unpriced, l.formatUnpriced()}, {l.Estimated, "estimated"}} {
		if note.set && note.text != "" {
			parts = append(parts, note.text)
		}
	}
	return strings.Join(parts, ", ")
}

// formatLate returns that the line is late and when its usage was, if it was stored with it.
func (l Line) formatLate() string {
	if l.Month == "" {
		return "recorded late"
	}
	return "recorded late, used in " + l.Month
}

// formatUnpriced returns what has no price, "" for a charge of an earlier version, which may lack nothing but a cost.
func (l Line) formatUnpriced() string {
	switch {
	case len(l.UnpricedMeters) == 1:
		return "charged in part: " + l.UnpricedMeters[0] + " has no price"
	case len(l.UnpricedMeters) > 1:
		return "charged in part: " + strings.Join(l.UnpricedMeters, " and ") + " have no price"
	case l.Charge != 0:
		return ""
	}
	return "without a price"
}

// Description returns the tax and its rate, in words.
func (l TaxLine) Description() string { return l.Name + " " + l.Rate.Percent() + " %" }

// formatCharge returns the charge, "" if no price was in force.
func (l Line) formatCharge() string {
	if l.Currency == "" {
		return ""
	}
	return l.Charge.Decimal(l.Currency)
}

// formatUsage returns the quantities by meter, in words.
func (l Line) formatUsage() string {
	var parts []string
	for _, meter := range slices.Sorted(maps.Keys(l.Usage)) {
		parts = append(parts, countNoun(l.Usage[meter], strings.TrimSuffix(strings.ReplaceAll(meter, "_", " "), "s")))
	}
	return strings.Join(parts, ", ")
}

// formatNumber returns the invoice's number, "" for a draft.
func (inv Invoice) formatNumber() string {
	if inv.Number == 0 {
		return ""
	}
	return strconv.FormatInt(inv.Number, 10)
}
