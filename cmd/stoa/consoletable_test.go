package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTableCells checks that the text of a cell cannot look like another row.
func TestTableCells(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := &console{out: &out}
	if err := c.printTable([]string{"DOCUMENT", "STATE"}, [][]string{{"a\nb\tc\u202ed\x1b[2J", "indexed"}, {"grün", "failed"}}); err != nil {
		t.Fatal(err)
	}
	const want = "DOCUMENT               STATE\na\\nb\\tc\\u202ed\\x1b[2J  indexed\ngrün                   failed\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestInvoiceSums checks the sums below a list of invoices: by currency, and without the invoices on which nothing has a
// price, which have no totals.
func TestInvoiceSums(t *testing.T) {
	t.Parallel()
	var invoices []any
	if err := json.Unmarshal([]byte(`[{"id": "2026-11", "status": "draft", "totals": []},
		{"id": "2026-11", "status": "final", "totals": [{"currency": "USD", "charge_decimal": "1.005", "credits_decimal": "0.00",
			"carried_decimal": "0.00", "net_decimal": "1.01", "tax_decimal": "0.00", "due_decimal": "1.01"}]}]`), &invoices); err != nil {
		t.Fatal(err)
	}
	got, err := sumInvoices(splitTotals(invoices))
	if err != nil {
		t.Fatal(err)
	}
	want := []any{map[string]any{
		"status": "final", "currency": "USD", "documents": "1", "charge": "1.005", "credits": "0.00", "carried": "0.00", "net": "1.01", "tax": "0.00", "due": "1.01",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sums (-want +got):\n%s", diff)
	}
}
