package invoice

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"stoa/billing/amount"
	"stoa/billing/spreadsheet"
)

// WriteCSV writes the invoice as CSV: one record for each line, credit use, rounding, tax and total, and one with the
// number of calls without a price if there are any. Amounts are decimal. In each currency the records before the total
// sum to it.
func (inv Invoice) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	head := []string{"invoice", "number", "status", "app", "from", "to", "timezone"}
	about := []string{
		inv.ID, inv.formatNumber(), string(inv.Status), inv.App, inv.Period.From.Format(time.RFC3339), inv.Period.To.Format(time.RFC3339), inv.Period.Timezone,
	}
	row := func(cells ...string) error {
		for i, c := range cells {
			cells[i] = spreadsheet.EscapeFormula(c)
		}
		return out.Write(cells)
	}
	err := row(append(head, "row", "description", "usage", "quantity", "included", "per", "price", "late", "unpriced", "currency", "amount")...)
	for _, l := range inv.Lines {
		quantity, included, per, price := "", "", "", ""
		if l.Kind == PlanLine {
			quantity, included = strconv.FormatInt(l.Quantity, 10), strconv.FormatInt(l.Included, 10)
			if l.Per > 0 {
				per, price = strconv.FormatInt(l.Per, 10), l.Amount.Decimal(l.Currency)
			}
		}
		err = cmp.Or(err, row(append(slices.Clone(about), "line", l.Description(), l.formatUsage(), quantity, included, per, price,
			strconv.FormatBool(l.Late), strconv.FormatBool(l.Unpriced), l.Currency, l.formatCharge())...))
	}
	if inv.UnpricedCalls > 0 {
		err = cmp.Or(err, row(append(slices.Clone(about), "unpriced", "calls without a price in the price book", "", strconv.FormatInt(inv.UnpricedCalls, 10),
			"", "", "", "", "true", "", "")...))
	}
	amountRow := func(kind, text, currency string, m amount.Money) {
		err = cmp.Or(err, row(append(slices.Clone(about), kind, text, "", "", "", "", "", "", "", currency, m.Decimal(currency))...))
	}
	for _, c := range inv.Credits {
		amountRow("credit", c.Credit, c.Currency, -c.Amount)
	}
	for _, t := range inv.Totals {
		amountRow("rounding", "carried to the next invoice, less what was carried to this one", t.Currency, -t.rounding())
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
	}{{l.Late, "recorded late"}, {l.Unpriced, "without a price"}, {l.Estimated, "estimated"}} {
		if note.set {
			parts = append(parts, note.text)
		}
	}
	return strings.Join(parts, ", ")
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
		parts = append(parts, fmt.Sprintf("%d %s", l.Usage[meter], strings.ReplaceAll(meter, "_", " ")))
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
