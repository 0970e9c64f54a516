package invoice

import (
	"html/template"
	"io"
)

// WriteHTML writes the invoice as an HTML page for print. It refers to no other resource; html/template escapes all
// values.
func (inv Invoice) WriteHTML(w io.Writer) error { return invoiceTemplate.Execute(w, inv) }

// invoiceTemplate is executed with an [Invoice]. It calls functions and no methods: a template that calls methods by name
// would keep every exported method of the program in the binary, and the published one permits none.
var invoiceTemplate = template.Must(template.New("invoice").Funcs(template.FuncMap{
	"title":    Invoice.printedTitle,
	"facts":    Invoice.printedFacts,
	"rows":     Invoice.printedRows,
	"due":      printedRow.IsDue,
	"note":     Invoice.PaymentNote,
	"unpriced": Invoice.unpricedNote,
}).Parse(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>{{title .}}</title>
<style>
body { font: 11pt/1.45 system-ui, sans-serif; color: #1a1a1a; max-width: 46rem; margin: 3rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: 0.2rem }
table { border-collapse: collapse; width: 100%; margin: 1.5rem 0 }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem 0.3rem 0; border-bottom: 1px solid #ccc }
address { font-style: normal; margin-bottom: 2rem }
td.amount, th.amount { text-align: right; white-space: nowrap; padding-right: 0 }
tr { break-inside: avoid }
@page { margin: 2cm }
</style>
{{- with .Seller}}
<address>{{template "party" .}}</address>
{{- end}}
<h1>{{title .}}</h1>
{{- with .Buyer}}
<address>{{template "party" .}}</address>
{{- end}}
<p>{{range $i, $fact := facts .}}{{if $i}}<br>{{end}}{{$fact}}{{end}}</p>
<table>
<tr><th>For</th><th>Used</th><th class="amount">Amount</th></tr>
{{- range rows .}}
{{- if due .}}
<tr><th>{{.Text}}</th><th></th><th class="amount">{{.Amount}}</th></tr>
{{- else}}
<tr><td>{{.Text}}</td><td>{{.Detail}}</td><td class="amount">{{.Amount}}</td></tr>
{{- end}}{{end}}
</table>
{{- with unpriced .}}
<p>{{.}}</p>
{{- end}}
{{- with note .}}
<p>{{.}}</p>
{{- end}}
</html>
{{- define "party"}}<strong>{{.Name}}</strong>
{{- range .Address}}<br>{{.}}{{end}}
{{- with .TaxID}}<br>Tax id {{.}}{{end}}
{{- with .Email}}<br>{{.}}{{end}}
{{- end}}
`))
