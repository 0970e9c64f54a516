package invoice

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"stoa/billing/amount"
	"stoa/billing/ledger"
	"stoa/billing/price"
	"stoa/tenancy/db"
)

// CreditUse is the amount of an invoice that a credit pays.
type CreditUse struct {
	Credit   string       `json:"credit"`
	Currency string       `json:"currency"`
	Amount   amount.Money `json:"amount"`
}

// TaxLine is a tax on the net amount of an invoice in a currency.
type TaxLine struct {
	price.Tax
	Currency string       `json:"currency"`
	Net      amount.Money `json:"net"`
	Amount   amount.Money `json:"amount"`
}

// Total is the total of an invoice in a currency. Charge, Credits, Carried and Remainder are exact; Net, Tax and Due are
// multiples of the currency's minor unit. Charge - Credits + Carried = Net + Remainder, and Net + Tax = Due.
type Total struct {
	Currency string `json:"currency"`
	// Charge is the sum of the lines.
	Charge  amount.Money `json:"charge"`
	Credits amount.Money `json:"credits"`
	// Carried is what rounding had left of earlier invoices, Remainder what it leaves to the next one.
	Carried   amount.Money `json:"carried"`
	Net       amount.Money `json:"net"`
	Tax       amount.Money `json:"tax"`
	Due       amount.Money `json:"due"`
	Remainder amount.Money `json:"remainder"`
}

// rounding returns the part of the exact amount that is not due: it is carried.
func (t Total) rounding() amount.Money { return t.Charge - t.Credits - t.Net }

// unpaid returns the part of the charge that no credit pays.
func (t Total) unpaid() amount.Money { return t.Charge - t.Credits }

// negate returns the total of the credit note of an invoice.
func (t Total) negate() Total {
	return Total{t.Currency, -t.Charge, -t.Credits, -t.Carried, -t.Net, -t.Tax, -t.Due, -t.Remainder}
}

// totalFor returns the total of inv in a currency, and appends one if there is none. The pointer is valid until the
// next append.
func (inv *Invoice) totalFor(currency string) *Total {
	i := slices.IndexFunc(inv.Totals, func(t Total) bool { return t.Currency == currency })
	if i < 0 {
		i = len(inv.Totals)
		inv.Totals = append(inv.Totals, Total{Currency: currency})
	}
	return &inv.Totals[i]
}

// settleTotal rounds a total, whose Charge and Credits are set, adds its taxes, and replaces what is carried. A reversal
// can carry less than minus a minor unit: the net amount is never negative.
func (inv *Invoice) settleTotal(t *Total, taxes []price.Tax, carried map[string]amount.Money) {
	unit := amount.MinorUnit(t.Currency)
	t.Carried = carried[t.Currency]
	exact := (t.Charge - t.Credits).Add(t.Carried)
	t.Net = max(0, exact.Round(unit))
	t.Remainder = exact - t.Net
	carried[t.Currency] = t.Remainder
	for _, tax := range taxes {
		line := TaxLine{Tax: tax, Currency: t.Currency, Net: t.Net, Amount: tax.Rate.TaxOf(t.Net, unit)}
		inv.Taxes = append(inv.Taxes, line)
		t.Tax = t.Tax.Add(line.Amount)
	}
	t.Due = t.Net.Add(t.Tax)
}

// readCarried reads what rounding has left of the invoices of an app, by currency.
func readCarried(ctx context.Context, request queryFunc, app db.ID) (map[string]amount.Money, error) {
	carried := map[string]amount.Money{}
	err := request(ctx, func(r db.Row) error {
		var currency string
		var n int64
		err := r.Scan(&currency, &n)
		carried[currency] = amount.Money(n)
		return err
	}, `SELECT e.currency, `+amount.SumSQL("p.amount")+` FROM ledger_entry e JOIN ledger_posting p ON p.app = e.app AND p.entry = e.id
		WHERE e.app = $1 AND p.account = $2 GROUP BY e.currency`, string(app), string(ledger.Carried))
	if err != nil {
		return nil, fmt.Errorf("read what is carried of app %s: %w", app, err)
	}
	return carried, nil
}

// MarshalJSON implements [json.Marshaler]: it adds the amount as a decimal.
func (u CreditUse) MarshalJSON() ([]byte, error) {
	type fields CreditUse
	return json.Marshal(struct {
		fields
		AmountDecimal string `json:"amount_decimal"`
	}{fields(u), u.Amount.Decimal(u.Currency)})
}

// MarshalJSON implements [json.Marshaler]: it adds the amounts as decimals.
func (l TaxLine) MarshalJSON() ([]byte, error) {
	type fields TaxLine
	return json.Marshal(struct {
		fields
		NetDecimal    string `json:"net_decimal"`
		AmountDecimal string `json:"amount_decimal"`
	}{fields(l), l.Net.Decimal(l.Currency), l.Amount.Decimal(l.Currency)})
}

// MarshalJSON implements [json.Marshaler]: it adds the amounts as decimals.
func (t Total) MarshalJSON() ([]byte, error) {
	type fields Total
	return json.Marshal(struct {
		fields
		ChargeDecimal    string `json:"charge_decimal"`
		CreditsDecimal   string `json:"credits_decimal"`
		CarriedDecimal   string `json:"carried_decimal"`
		NetDecimal       string `json:"net_decimal"`
		TaxDecimal       string `json:"tax_decimal"`
		DueDecimal       string `json:"due_decimal"`
		RemainderDecimal string `json:"remainder_decimal"`
	}{
		fields(t), t.Charge.Decimal(t.Currency), t.Credits.Decimal(t.Currency), t.Carried.Decimal(t.Currency), t.Net.Decimal(t.Currency), t.Tax.Decimal(t.Currency), t.Due.Decimal(t.Currency), t.Remainder.Decimal(t.Currency),
	})
}
