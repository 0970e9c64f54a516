package main

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"stoa/billing/amount"
	"stoa/billing/spreadsheet"
)

// tableFlags are the flags of the commands that print a list as a table, as JSON or as CSV.
type tableFlags struct {
	billingFlags `embed:""`
	CSV          bool `name:"csv" help:"Print comma-separated values, for spreadsheets."`
}

// checkForm refuses two forms at once.
func (f *tableFlags) checkForm() error {
	if f.CSV && f.JSON {
		return &exitError{code: exitUsage, cause: errors.New("--csv and --json do not go together")}
	}
	return nil
}

// printCSV prints rows of decoded JSON as CSV, with the headers of the columns in lower case. Texts that a spreadsheet would
// take for a formula are escaped, because tenants choose some of them.
func (c *console) printCSV(columns []column, rows []any) error {
	out := csv.NewWriter(c.out)
	record := make([]string, len(columns))
	for i, col := range columns {
		record[i] = strings.ToLower(col.header)
	}
	err := out.Write(record)
	for _, row := range rows {
		for i, col := range columns {
			text := formatMember(row, col.member)
			if text == "-" {
				text = "" // a missing member
			}
			record[i] = spreadsheet.EscapeFormula(text)
		}
		err = cmp.Or(err, out.Write(record))
	}
	out.Flush()
	return cmp.Or(err, out.Error())
}

// splitTotals returns the rows of invoices, one for each currency of an invoice. The row of an invoice on which nothing has a
// price has no totals.
func splitTotals(invoices []any) (rows []any) {
	for _, inv := range invoices {
		fields, _ := inv.(map[string]any)
		totals, _ := fields["totals"].([]any)
		if len(totals) == 0 {
			row := maps.Clone(fields)
			delete(row, "totals")
			rows = append(rows, row)
		}
		for _, total := range totals {
			row := maps.Clone(fields)
			row["totals"] = total
			rows = append(rows, row)
		}
	}
	return rows
}

// summedTotals are the amounts of the totals of invoices that can be summed.
var summedTotals = []string{"charge", "credits", "carried", "net", "tax", "due"}

// sumInvoices returns the sums of rows of splitTotals, a row for each currency of what is final and of the drafts. Reversed
// invoices and credit notes are final: they cancel each other.
func sumInvoices(rows []any) ([]any, error) {
	type group struct{ status, currency string }
	sums, counts := map[group]map[string]amount.Money{}, map[group]int{}
	for _, row := range rows {
		of := group{"final", formatMember(row, "totals.currency")}
		if formatMember(row, "status") == "draft" {
			of.status = "draft"
		}
		if of.currency == "-" {
			continue // nothing was used, or nothing has a price
		}
		if sums[of] == nil {
			sums[of] = map[string]amount.Money{}
		}
		counts[of]++
		for _, name := range summedTotals {
			m, err := amount.ParseDecimal(formatMember(row, "totals."+name+"_decimal"))
			if err != nil {
				return nil, fmt.Errorf("sum %s of %s: %w", name, formatMember(row, "id"), err)
			}
			sums[of][name] = sums[of][name].Add(m)
		}
	}
	var out []any
	for _, of := range slices.SortedFunc(maps.Keys(sums), func(x, y group) int {
		return cmp.Or(cmp.Compare(x.status, y.status), cmp.Compare(x.currency, y.currency))
	}) {
		row := map[string]any{"status": of.status, "currency": of.currency, "documents": strconv.Itoa(counts[of])}
		for name, m := range sums[of] {
			row[name] = m.Decimal(of.currency)
		}
		out = append(out, row)
	}
	return out, nil
}

// printInvoiceSums prints the sums of rows of splitTotals below a table of invoices, nothing if there are none.
func (c *console) printInvoiceSums(rows []any) error {
	sums, err := sumInvoices(rows)
	if err != nil || len(sums) == 0 {
		return err
	}
	columns := []column{{"STATUS", "status"}, {"CURRENCY", "currency"}, {"DOCUMENTS", "documents"}}
	for _, name := range summedTotals {
		columns = append(columns, column{strings.ToUpper(name), name})
	}
	c.printText("\n")
	return c.printColumns(columns, sums)
}

// usageQuantities are the quantities of usage in CSV.
var usageQuantities = []string{
	"input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "model_calls", "tool_calls", "runs", "run_seconds", "embeddings",
	"stored_bytes", "unpriced",
}

// csvColumns returns the columns of usage in CSV: those of the table, the provider of a model, and all quantities.
func (cmd *billingUsageCmd) csvColumns() []column {
	var columns []column
	for _, col := range cmd.groupColumns() {
		if col.member == "model" {
			columns = append(columns, column{"PROVIDER", "provider"})
		}
		columns = append(columns, col)
	}
	columns = append(columns, column{"CURRENCY", "currency"}, column{"CHARGE", "charge_decimal"}, column{"COST", "cost_decimal"})
	for _, name := range usageQuantities {
		columns = append(columns, column{name, name})
	}
	return columns
}
