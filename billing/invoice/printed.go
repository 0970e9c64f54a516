package invoice

import (
	"fmt"
	"strings"
	"time"

	"stoa/billing/amount"
)

// rowPart is the part of a printed invoice that a row belongs to.
type rowPart int

const (
	chargedPart rowPart = iota // lines and credits
	totalPart                  // what is carried, net and taxes
	duePart
)

// printedRow is a row of an invoice for print. Its fields are exported for the template of the page.
type printedRow struct {
	Part rowPart
	// Text is what is charged, Detail how much of it, "" for nothing to say. Amount has its currency, "" if there is no
	// price.
	Text, Detail, Amount string
}

// IsDue reports whether the row is what is due in a currency.
func (r printedRow) IsDue() bool { return r.Part == duePart }

// printedRows returns the rows of the invoice for print. In each currency the rows before what is due sum to it.
func (inv Invoice) printedRows() (rows []printedRow) {
	add := func(part rowPart, text, detail string, m amount.Money, currency string) {
		rows = append(rows, printedRow{part, text, detail, m.Decimal(currency) + " " + currency})
	}
	for _, l := range inv.Lines {
		rows = append(rows, printedRow{chargedPart, l.Description(), l.formatQuantity(), strings.TrimSpace(l.formatCharge() + " " + l.Currency)})
	}
	for _, c := range inv.Credits {
		add(chargedPart, "Credit", c.Credit, -c.Amount, c.Currency)
	}
	for _, t := range inv.Totals {
		if t.Carried != 0 {
			add(totalPart, "Carried from earlier invoices", "", t.Carried, t.Currency)
		}
		if t.Remainder != 0 {
			add(totalPart, "Carried to the next invoice", "", -t.Remainder, t.Currency)
		}
		add(totalPart, "Net", "", t.Net, t.Currency)
	}
	for _, t := range inv.Taxes {
		add(totalPart, t.Description(), "of "+t.Net.Decimal(t.Currency)+" "+t.Currency, t.Amount, t.Currency)
	}
	for _, t := range inv.Totals {
		add(duePart, "Due", "", t.Due, t.Currency)
	}
	return rows
}

// formatQuantity returns how much was used, for print.
func (l Line) formatQuantity() string {
	if l.Kind != PlanLine {
		return l.formatUsage()
	}
	text := fmt.Sprintf("%d, %d included", l.Quantity, l.Included)
	if l.Per > 0 {
		text += fmt.Sprintf(", %s for each %d beyond", l.Amount.Decimal(l.Currency), l.Per)
	}
	return text
}

// printedTitle returns the heading for print, with the invoice's number and id.
func (inv Invoice) printedTitle() string {
	title := "Invoice"
	if inv.Kind == CreditNote {
		title = "Credit note"
	}
	if inv.Number > 0 {
		title += fmt.Sprintf(" No. %d", inv.Number)
	}
	if inv.Status == Draft {
		return fmt.Sprintf("%s (%s, draft)", title, inv.ID)
	}
	return fmt.Sprintf("%s (%s)", title, inv.ID)
}

// printedFacts returns the lines below the heading: app, period, and the documents that belong to the invoice.
func (inv Invoice) printedFacts() []string {
	app := inv.App
	if inv.Plan != "" {
		app += ", plan " + inv.Plan
	}
	day := func(t time.Time, zone string) string { return inZone(t, zone).Format(time.DateOnly) }
	// The end of a period is exclusive.
	last := inv.Period.To.Add(-time.Microsecond)
	facts := []string{app, fmt.Sprintf("%s to %s (%s)", day(inv.Period.From.Time, inv.Period.Timezone), day(last, inv.Period.Timezone), inv.Period.Timezone)}
	if inv.FinalizedAt != nil {
		facts = append(facts, "made on "+day(inv.FinalizedAt.Time, inv.Period.Timezone))
	}
	for _, reference := range []struct{ text, id string }{
		{"takes back invoice ", inv.nameReversed()}, {"taken back by ", inv.ReversedBy}, {"replaces invoice ", inv.Replaces}, {"replaced by invoice ", inv.ReplacedBy},
	} {
		if reference.id != "" {
			facts = append(facts, reference.text+reference.id)
		}
	}
	return facts
}

// unpricedNote returns how many calls on the invoice have no price or are charged in part, "" if there are none.
func (inv Invoice) unpricedNote() string {
	if inv.UnpricedCalls == 0 {
		return ""
	}
	return fmt.Sprintf("Calls without a price or charged in part: %d", inv.UnpricedCalls)
}

// nameReversed returns the number and the id of the invoice that a credit note reverses, "" for an invoice. A credit note
// from before its number was stored with it has the id alone.
func (inv Invoice) nameReversed() string {
	if inv.ReversesNumber == 0 {
		return inv.Reverses
	}
	return fmt.Sprintf("No. %d (%s)", inv.ReversesNumber, inv.Reverses)
}

// PaymentNote returns the seller's note, such as the terms of payment; "" on a credit note, on which nothing is to be paid.
func (inv Invoice) PaymentNote() string {
	if inv.Seller == nil || inv.Kind == CreditNote {
		return ""
	}
	return inv.Seller.Note
}

// inZone returns t in the zone of that name, or in UTC if this machine does not know the zone.
func inZone(t time.Time, zone string) time.Time {
	if z, err := time.LoadLocation(zone); err == nil {
		return t.In(z)
	}
	return t.UTC()
}
