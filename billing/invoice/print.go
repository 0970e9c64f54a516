package invoice

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"stoa/billing/amount"
	"stoa/billing/spreadsheet"
)

// WriteCSV writes the invoice as CSV: one record for each line, credit use, rounding, tax and total. Amounts are decimal.
// In each currency the records before the total sum to it.
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
				per, price = strconv.FormatInt(l.Per, 10), l.Amount.Decimal()
			}
		}
		err = cmp.Or(err, row(append(slices.Clone(about), "line", l.Description(), l.formatUsage(), quantity, included, per, price,
			strconv.FormatBool(l.Late), strconv.FormatBool(l.Unpriced), l.Currency, l.formatCharge())...))
	}
	amountRow := func(kind, text, currency string, m amount.Money) {
		err = cmp.Or(err, row(append(slices.Clone(about), kind, text, "", "", "", "", "", "", "", currency, m.Decimal())...))
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
		return "plan: " + strings.ReplaceAll(l.Meter, "_", " ")
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
	return l.Charge.Decimal()
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

// WriteHTML writes the invoice as an HTML page for print. It refers to no other resource; html/template escapes all
// values.
func (inv Invoice) WriteHTML(w io.Writer) error { return invoiceTemplate.Execute(w, inv) }

// invoiceTemplate is executed with an [Invoice]. "last" is the last day of the period, whose end is exclusive.
var invoiceTemplate = template.Must(template.New("invoice").Funcs(template.FuncMap{
	"usage": Line.formatUsage,
	"money": Line.formatCharge,
	"day":   func(t time.Time, zone string) string { return inZone(t, zone).Format(time.DateOnly) },
	"last": func(t time.Time, zone string) string {
		return inZone(t, zone).Add(-time.Microsecond).Format(time.DateOnly)
	},
	"minus": func(m amount.Money) amount.Money { return -m },
}).Parse(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>{{if eq .Kind "credit_note"}}Credit note{{else}}Invoice{{end}} {{.ID}}</title>
<style>
body { font: 11pt/1.45 system-ui, sans-serif; color: #1a1a1a; max-width: 46rem; margin: 3rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: 0.2rem }
table { border-collapse: collapse; width: 100%; margin: 1.5rem 0 }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem 0.3rem 0; border-bottom: 1px solid #ccc }
address { font-style: normal; margin-bottom: 2rem }
td.amount, th.amount { text-align: right; white-space: nowrap; padding-right: 0 }
small { color: #555 }
tr { break-inside: avoid }
@page { margin: 2cm }
</style>
{{- with .Seller}}
<address>{{template "party" .}}</address>
{{- end}}
<h1>{{if eq .Kind "credit_note"}}Credit note{{else}}Invoice{{end}}{{if .Number}} No. {{.Number}}{{end}}{{if eq .Status "draft"}} (draft){{end}}</h1>
{{- with .Buyer}}
<address>{{template "party" .}}</address>
{{- end}}
<p>{{.App}}{{if .Plan}}, plan {{.Plan}}{{end}}<br>
{{day .Period.From.Time .Period.Timezone}} to {{last .Period.To.Time .Period.Timezone}} ({{.Period.Timezone}})
{{- with .FinalizedAt}}<br>made on {{day .Time "UTC"}}{{end}}
{{- with .Reverses}}<br>takes back invoice {{.}}{{end}}
{{- with .ReversedBy}}<br>taken back by {{.}}{{end}}
{{- with .Replaces}}<br>replaces invoice {{.}}{{end}}
{{- with .ReplacedBy}}<br>replaced by invoice {{.}}{{end}}</p>
<table>
<tr><th>For</th><th>Used</th><th class="amount">Amount</th></tr>
{{- range .Lines}}
<tr><td>{{.Description}}</td><td>{{if eq .Kind "plan"}}{{.Quantity}}, {{.Included}} included{{if .Per}}<br><small>{{.Amount.Decimal}} for each {{.Per}} beyond</small>{{end}}{{else}}{{usage .}}{{end}}</td><td class="amount">{{money .}} {{.Currency}}</td></tr>
{{- end}}
{{- range .Credits}}
<tr><td>Credit</td><td><small>{{.Credit}}</small></td><td class="amount">{{(minus .Amount).Decimal}} {{.Currency}}</td></tr>
{{- end}}
{{- range .Totals}}{{if .Carried}}
<tr><td>Carried from earlier invoices</td><td></td><td class="amount">{{.Carried.Decimal}} {{.Currency}}</td></tr>
{{- end}}{{if .Remainder}}
<tr><td>Carried to the next invoice</td><td></td><td class="amount">{{(minus .Remainder).Decimal}} {{.Currency}}</td></tr>
{{- end}}
<tr><td>Net</td><td></td><td class="amount">{{.Net.Decimal}} {{.Currency}}</td></tr>
{{- end}}
{{- range .Taxes}}
<tr><td>{{.Description}}</td><td><small>of {{.Net.Decimal}} {{.Currency}}</small></td><td class="amount">{{.Amount.Decimal}} {{.Currency}}</td></tr>
{{- end}}
{{- range .Totals}}
<tr><th>Due</th><th></th><th class="amount">{{.Due.Decimal}} {{.Currency}}</th></tr>
{{- end}}
</table>
{{- with .Seller}}{{with .Note}}
<p>{{.}}</p>
{{- end}}{{end}}
</html>
{{- define "party"}}<strong>{{.Name}}</strong>
{{- range .Address}}<br>{{.}}{{end}}
{{- with .TaxID}}<br>Tax id {{.}}{{end}}
{{- with .Email}}<br>{{.}}{{end}}
{{- end}}
`))

// inZone returns t in the zone of that name, or in UTC if this machine does not know the zone.
func inZone(t time.Time, zone string) time.Time {
	if z, err := time.LoadLocation(zone); err == nil {
		return t.In(z)
	}
	return t.UTC()
}
