package invoice_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/agentsvctest"
	"stoa/billing/amount"
	"stoa/billing/invoice"
	"stoa/billing/party"
	"stoa/billing/price"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

const wantText = `Agents Ltd
1 Porch Street
Tax id DE123456789

Invoice No. 7 (2026-11-2)

Acme GmbH
books@acme.test

acme, plan pro
2026-11-01 to 2026-11-30 (Europe/Berlin)
made on 2026-12-03
replaces invoice 2026-11

--------------------------------------------------------------------------------
base fee of plan pro                                                   20.00 USD
plan: input tokens                                                      1.50 USD
  2000, 1500 included, 3.00 for each 1000 beyond
model                                                            3.200000001 USD
scripted/a-model-with-a-name-that-is-longer-than-a-line-of-an-i
nvoice-in-plain-text
  2 model calls, 400 output tokens
model 東京/東京 ` + "\ufffd" + `[2J                                                     100 JPY
embedding scripted/e, without a price
  3 embeddings
plan: runs, without a price
  5, 2 included
Credit                                                                 -2.00 USD
  welcome
--------------------------------------------------------------------------------
Carried from earlier invoices                                    0.000000002 USD
Carried to the next invoice                                     -0.000000003 USD
Net                                                                    22.70 USD
Net                                                                      100 JPY
VAT 19 %                                                                4.31 USD
  of 22.70 USD
--------------------------------------------------------------------------------
Due                                                                    27.01 USD
Due                                                                      100 JPY

Payable within 14 days to the account that is named in the contract, please name
the number of the invoice.
`

// TestInvoiceText checks that an invoice in plain text has all that the page has, in 80 columns, and no control
// characters.
func TestInvoiceText(t *testing.T) {
	t.Parallel()
	at := func(text string) invoice.Timestamp {
		v, err := time.Parse(time.RFC3339, text)
		agentsvctest.RequireNoErrors(t, err)
		return invoice.Timestamp{Time: v}
	}
	finalized := at("2026-12-02T23:30:00Z") // the next day in the zone of the period
	inv := invoice.Invoice{
		ID: "2026-11-2", Kind: invoice.Invoiced, Status: invoice.Final, Number: 7, App: "acme", Plan: "pro",
		Period: invoice.Period{From: at("2026-10-31T23:00:00Z"), To: at("2026-11-30T23:00:00Z"), Timezone: "Europe/Berlin"},
		Lines: []invoice.Line{
			{Kind: invoice.BaseFeeLine, Plan: "pro", Currency: "USD", Charge: 20_000_000_000},
			{Kind: invoice.PlanLine, Meter: "input_tokens", Quantity: 2000, Included: 1500, Per: 1000, Amount: 3_000_000_000, Currency: "USD", Charge: 1_500_000_000},
			{Kind: amount.ModelCall, Provider: "scripted", Model: "a-model-with-a-name-that-is-longer-than-a-line-of-an-invoice-in-plain-text", Usage: map[string]int64{"model_calls": 2, "output_tokens": 400}, Currency: "USD", Charge: 3_200_000_001},
			{Kind: amount.ModelCall, Provider: "東京", Model: "東京\n\x1b[2J", Currency: "JPY", Charge: 100_000_000_000},
			{Kind: amount.Embedding, Provider: "scripted", Model: "e", PriceGap: invoice.PriceGap{Unpriced: true}, Usage: map[string]int64{"embeddings": 3}},
			{Kind: invoice.PlanLine, Meter: "runs", Quantity: 5, Included: 2, PriceGap: invoice.PriceGap{Unpriced: true}},
		},
		Credits: []invoice.CreditUse{{Credit: "welcome", Currency: "USD", Amount: 2_000_000_000}},
		Taxes:   []invoice.TaxLine{{Tax: price.Tax{Name: "VAT", Rate: 190_000}, Currency: "USD", Net: 22_700_000_000, Amount: 4_310_000_000}},
		Totals: []invoice.Total{
			{Currency: "USD", Charge: 24_700_000_001, Credits: 2_000_000_000, Carried: 2, Net: 22_700_000_000, Tax: 4_310_000_000, Due: 27_010_000_000, Remainder: 3},
			{Currency: "JPY", Charge: 100_000_000_000, Net: 100_000_000_000, Due: 100_000_000_000},
		},
		Parties: party.Parties{
			Seller: &party.Party{Name: "Agents Ltd", Address: []string{"1 Porch Street"}, TaxID: "DE123456789", Note: "Payable within 14 days to the account that is named in the contract, please name the number of the invoice."},
			Buyer:  &party.Party{Name: "Acme GmbH", Email: "books@acme.test"},
		},
		FinalizedAt: &finalized, References: invoice.References{Replaces: "2026-11"},
	}
	var text bytes.Buffer
	agentsvctest.RequireNoErrors(t, inv.WriteText(&text))
	if diff := cmp.Diff(wantText, text.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for line := range strings.Lines(text.String()) {
		if n := len([]rune(line)) - 1; n > 80 {
			t.Errorf("a line of %d characters: %q", n, line)
		}
	}
}

// TestCreditNoteText checks that a printed credit note names the number of its invoice, and no terms of payment.
func TestCreditNoteText(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app, ctx := openPriced(t, d), usagetest.NewApp(), t.Context()
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 5), 1))
		first, err := s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{})
		agentsvctest.RequireNoErrors(t, err)
		note, err := s.Invoices.ReverseInvoice(ctx, actor, app, "2026-01")
		agentsvctest.RequireNoErrors(t, err)
		note.Seller = &party.Party{Name: "Agents Ltd", Note: "Payable within 14 days"}
		var text, page bytes.Buffer
		agentsvctest.RequireNoErrors(t, note.WriteText(&text), note.WriteHTML(&page))
		for name, got := range map[string]string{"text": text.String(), "page": page.String()} {
			if want := fmt.Sprintf("takes back invoice No. %d (2026-01)", first.Number); !strings.Contains(got, want) {
				t.Errorf("the %s has no %q:\n%s", name, want, got)
			}
			if strings.Contains(got, "Payable") {
				t.Errorf("the %s asks for a payment:\n%s", name, got)
			}
		}
	})
}

// TestUnpricedCalls checks that an invoice counts the calls that have no price, in lists and in every form too.
func TestUnpricedCalls(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app, ctx := openBilling(t, d), usagetest.NewApp(), t.Context()
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 5), 3))
		made, err := s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{AllowUnpriced: true})
		agentsvctest.RequireNoErrors(t, err)
		list, err := s.Invoices.ListInvoices(ctx, app)
		agentsvctest.RequireNoErrors(t, err)
		if made.UnpricedCalls != 3 || len(list) != 1 || list[0].UnpricedCalls != 3 {
			t.Errorf("unpriced: %d, in the list %+v, want 3", made.UnpricedCalls, list)
		}
		inv, err := s.Invoices.FindInvoice(ctx, app, "2026-01")
		agentsvctest.RequireNoErrors(t, err)
		var table, page, text bytes.Buffer
		agentsvctest.RequireNoErrors(t, inv.WriteCSV(&table), inv.WriteHTML(&page), inv.WriteText(&text))
		for form, want := range map[string][]string{
			table.String(): {"line,\"model p/m, without a price\"", "unpriced,calls without a price or charged in part,,3,,,,,true,,,"},
			page.String():  {"model p/m, without a price", "<p>Calls without a price or charged in part: 3</p>"},
			text.String():  {"model p/m, without a price", "\nCalls without a price or charged in part: 3\n"},
		} {
			for _, part := range want {
				if !strings.Contains(form, part) {
					t.Errorf("this lacks %q:\n%s", part, form)
				}
			}
		}
	})
}
