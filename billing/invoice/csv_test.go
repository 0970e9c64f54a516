package invoice_test

import (
	"bytes"
	"encoding/csv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/agentsvctest"
	"stoa/billing/amount"
	"stoa/billing/invoice"
)

// TestCSV reads the table of an invoice as a program does: by the names of its columns.
func TestCSV(t *testing.T) {
	t.Parallel()
	at := func(day int) invoice.Timestamp {
		return invoice.Timestamp{Time: time.Date(2026, 11, day, 0, 0, 0, 0, time.UTC)}
	}
	inv := invoice.Invoice{
		ID: "2026-11", Kind: invoice.Invoiced, Status: invoice.Final, Number: 7, App: "acme", Period: invoice.Period{From: at(1), To: at(30), Timezone: "UTC"},
		Lines: []invoice.Line{
			{
				Kind: amount.ModelCall, Provider: "openai", Model: "=gpt", PriceVersion: "one", Usage: map[string]int64{"input_tokens": 1000, "model_calls": 2},
				LateUse: invoice.LateUse{Late: true, Month: "2026-10"}, Estimated: true, Currency: "USD", Charge: 1_600_000_000,
			},
			{Kind: invoice.PlanLine, Meter: "output_tokens", Quantity: 400, Included: 100, Per: 1000, Amount: 3_000_000_000, Currency: "USD", Charge: 900_000_000},
		},
		Taxes:  []invoice.TaxLine{{Currency: "USD", Net: 2_500_000_000, Amount: 480_000_000}},
		Totals: []invoice.Total{{Currency: "USD", Charge: 2_500_000_000, Net: 2_500_000_000, Tax: 480_000_000, Due: 2_980_000_000}},
	}
	var table bytes.Buffer
	agentsvctest.RequireNoErrors(t, inv.WriteCSV(&table))
	records, err := csv.NewReader(&table).ReadAll()
	agentsvctest.RequireNoErrors(t, err)
	var rows []map[string]string
	for _, record := range records[1:] {
		row := map[string]string{}
		for i, name := range records[0] {
			// The columns that are the same in every record are not compared.
			if record[i] != "" && i > 6 && name != "description" && name != "usage" {
				row[name] = record[i]
			}
		}
		rows = append(rows, row)
	}
	want := []map[string]string{
		{
			"row": "line", "kind": "model", "provider": "openai", "model": "'=gpt", "price_version": "one", "month": "2026-10", "late": "true", "unpriced": "false", "estimated": "true",
			"input_tokens": "1000", "model_calls": "2", "currency": "USD", "amount": "1.60",
		},
		{
			"row": "line", "kind": "plan", "late": "false", "unpriced": "false", "estimated": "false", "quantity": "400", "included": "100", "per": "1000", "price": "3.00",
			"meter": "output_tokens", "currency": "USD", "amount": "0.90",
		},
		{"row": "rounding", "currency": "USD", "amount": "0.00"},
		{"row": "net", "currency": "USD", "amount": "2.50"},
		{"row": "tax", "currency": "USD", "amount": "0.48"},
		{"row": "total", "currency": "USD", "amount": "2.98"},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}
