// Package budget bounds what apps use. A [Budget] bounds tokens, model calls or money within a window, for an app, a
// part of it ([Scope]) or the platform. A call of a model or an embedder goes through three steps. The first belongs to
// the admission of a request (runtime.Runtime.AdmitCall), the others to the call itself (meteredModel and meteredEmbedder
// of package runtime):
//
//  1. [Gate.CheckBudget] refuses a request early if a budget is already used up.
//  2. [Gate.ReserveBudget] reserves, before the call, the most that the call can cost, in every budget that applies, or
//     in none.
//  3. [CostReservation.SettleReservation] replaces the reserved amount by the actual usage and writes the usage row, in
//     one transaction; [CostReservation.ReleaseReservation] returns the reserved amount if nothing was used.
//
// A process renews its reservations. Those of a process that died expire ([Service.ExpireReservations]), and the
// balance is then computed again from the usage rows ([Service.rebuildBalance]). So a hard budget is not exceeded by
// concurrent calls in several processes, and a crash neither loses usage that was recorded nor keeps an amount
// reserved.
package budget

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/billing/calendar"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/tenancy/db"
)

// Budget bounds what model calls may use within a window: the calls of an app or, where App is "", of all apps
// together. Its row in table budget is the definition; the usage of each window is a row of budget_balance ([Balance]).
type Budget struct {
	App   db.ID
	ID    string
	Name  string
	Scope Scope
	Unit  Unit
	// Amount is in tokens, calls or nano-units, by Unit.
	Amount int64
	// Currency is that of Amount if Unit is [InMoney]. A call charged in another currency does not count; if the budget
	// is hard such a call is refused unless a hard budget of the same scope has its currency.
	Currency string
	Window   calendar.Window
	// Zone is a name of the IANA time zone database; "" means UTC. The window's days and months begin by it.
	Zone string
	// Hard budgets refuse calls beyond Amount; soft ones only record threshold events.
	Hard bool
	// OnExhausted is [Reject] or [Pause].
	OnExhausted string
	// Thresholds are percentages of Amount, ascending; the first time a window reaches one, an event is recorded.
	Thresholds []int
	CreatedAt  time.Time
	UpdatedAt  time.Time
	// UpdatedBy is the actor of the last change, "" if there was none since the budget was created.
	UpdatedBy string

	// location is Zone parsed. scanRow and setDefaultsAndValidate set it.
	location *time.Location
}

// Scope selects the calls that a budget counts. An empty field matches every call. Model is a pattern of
// provider/model, or of the model's name alone.
type Scope struct {
	Agent string
	// Key is the id of an API key.
	Key string
	// User is the subject of the task's owner, from any issuer.
	User  string
	Model string
}

// coversCall reports whether a call is within the scope. An empty model means that the model is not known yet: it
// matches.
func (s Scope) coversCall(agent string, owner agentsvc.Owner, provider, model string) bool {
	return (s.Agent == "" || s.Agent == agent) && (s.Key == "" || s.Key == usage.APIKeyID(owner)) && (s.User == "" || s.User == owner.Subject) &&
		(model == "" || s.coversModel(provider, model))
}

// coversModel reports whether a model is within the scope.
func (s Scope) coversModel(provider, model string) bool {
	return price.MatchesModel(s.Model, provider, model)
}

// String returns the non-empty parts of the scope in words, such as "agent support, model openai/*".
func (s Scope) String() string {
	var parts []string
	for _, p := range [][2]string{{"agent", s.Agent}, {"key", s.Key}, {"user", s.User}, {"model", s.Model}} {
		if p[1] != "" {
			parts = append(parts, p[0]+" "+p[1])
		}
	}
	return strings.Join(parts, ", ")
}

// Unit is what a budget counts.
type Unit string

// The units.
const (
	// InTokens counts input and output tokens of models and the tokens that embedders get, as [amount.Quantities.Tokens] does.
	InTokens Unit = "tokens"
	// InCalls counts model calls, without those of embedders.
	InCalls Unit = "calls"
	// InMoney counts the charges of calls of models and embedders, in nano-units of the budget's currency. The platform's own cost does
	// not count.
	InMoney Unit = "money"
)

// FormatDecimal returns an amount of the unit in whole units of a currency, "" unless the unit is money.
func (u Unit) FormatDecimal(n int64, currency string) string {
	if u != InMoney {
		return ""
	}
	return amount.Money(n).Decimal(currency)
}

// The values of [Budget.OnExhausted]: what happens to a call that a hard budget cannot cover.
const (
	// Reject: the call fails with an error with the detail [*agentsvc.ExhaustedBudget].
	Reject = "reject"
	// Pause: the task waits until the budget covers its next call; see [Gate.CheckAvailability].
	Pause = "pause"
)

// defaultThresholds apply to a budget whose request names none.
var defaultThresholds = []int{80, 95, 100}

// Balance is a budget with its usage in the current window.
type Balance struct {
	Budget
	// Committed is what was used and settled, in the budget's unit. It can exceed Amount.
	Committed int64
	// Reserved is what calls in progress have reserved.
	Reserved int64
	// ResetsAt is the end of the window; zero for [calendar.Total].
	ResetsAt time.Time
	// PassedThresholds are the threshold events of this window. Only lists and single reads fill it.
	PassedThresholds []ThresholdEvent
}

// Remaining returns what further calls may reserve; 0 if the budget is exceeded.
func (b Balance) Remaining() int64 {
	return max(0, amount.Subtract(amount.Subtract(b.Amount, b.Committed), b.Reserved))
}

// setDefaultsAndValidate fills in omitted fields and returns an error with [agentsvc.CodeInvalid] for the first invalid
// one. currency is used for a money budget without one.
func (b *Budget) setDefaultsAndValidate(currency string) error {
	b.Zone = cmp.Or(b.Zone, "UTC")
	b.OnExhausted = cmp.Or(b.OnExhausted, Reject)
	if b.Thresholds == nil {
		b.Thresholds = defaultThresholds
	}
	if b.Unit == InMoney {
		b.Currency = cmp.Or(b.Currency, currency)
	}
	var err error
	b.location, err = time.LoadLocation(b.Zone)
	switch {
	case !price.IsValidName(b.Name):
		return agentsvc.NewInvalidError("name", "must be 1 to %d letters, digits, and . _ - between them", price.MaxNameBytes)
	case b.Unit != InTokens && b.Unit != InCalls && b.Unit != InMoney:
		return agentsvc.NewInvalidError("unit", "must be %s, %s or %s", InTokens, InCalls, InMoney)
	case b.Amount < 0:
		return agentsvc.NewInvalidError("amount", "must be a whole number, 0 or more; money is counted in nano-units")
	case !slices.Contains(calendar.Windows, b.Window):
		return agentsvc.NewInvalidError("window", "must be one of %s", strings.ReplaceAll(strings.Trim(fmt.Sprint(calendar.Windows), "[]"), " ", ", "))
	case err != nil || b.Zone == "Local":
		return agentsvc.NewInvalidError("timezone", "%.40q is no time zone, such as Europe/Berlin", b.Zone)
	case b.OnExhausted != Reject && b.OnExhausted != Pause:
		return agentsvc.NewInvalidError("on_exhausted", "must be %s or %s", Reject, Pause)
	case b.OnExhausted == Pause && !b.Hard:
		return agentsvc.NewInvalidError("on_exhausted", "%s needs a hard budget: a soft one blocks no call", Pause)
	case b.Unit == InMoney && !amount.IsCurrency(b.Currency):
		return agentsvc.NewInvalidError("currency", "is missing: neither the app's plan nor a price book names one")
	case b.Unit != InMoney && b.Currency != "":
		return agentsvc.NewInvalidError("currency", "is for budgets of money alone")
	}
	for _, part := range []string{b.Scope.Agent, b.Scope.Key, b.Scope.User, b.Scope.Model} {
		if len(part) > price.MaxPatternBytes {
			return agentsvc.NewInvalidError("scope", "holds a name of more than %d bytes", price.MaxPatternBytes)
		}
	}
	b.Thresholds = slices.Compact(slices.Sorted(slices.Values(b.Thresholds)))
	for _, t := range b.Thresholds {
		if t < 1 || t > 100 || len(b.Thresholds) > 10 {
			return agentsvc.NewInvalidError("thresholds", "must be at most ten percentages from 1 to 100")
		}
	}
	return nil
}

// auditDetail returns a change of b as the audit trail records it. before is nil for a new budget, after for a deleted
// one.
func (b Budget) auditDetail(before, after *Budget) map[string]any {
	d := map[string]any{"budget": b.Name}
	for word, x := range map[string]*Budget{"before": before, "after": after} {
		if x != nil {
			state := map[string]any{
				"scope": x.Scope.String(), "unit": string(x.Unit), "amount": x.Amount, "currency": x.Currency, "window": string(x.Window),
				"timezone": x.Zone, "hard": x.Hard, "on_exhausted": x.OnExhausted, "thresholds": x.Thresholds,
			}
			if x.Unit == InMoney {
				state["amount_decimal"] = x.Unit.FormatDecimal(x.Amount, x.Currency)
			}
			d[word] = state
		}
	}
	return d
}
