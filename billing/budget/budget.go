package budget

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/billing/calendar"
	"stoa/billing/change"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/tenancy"
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
	// InTokens counts input and output tokens, as [amount.Quantities.Tokens] does.
	InTokens Unit = "tokens"
	// InCalls counts model calls.
	InCalls Unit = "calls"
	// InMoney counts the charges of model calls, in nano-units of the budget's currency. The platform's own cost does
	// not count.
	InMoney Unit = "money"
)

// The values of [Budget.OnExhausted]: what happens to a call that a hard budget cannot cover.
const (
	// Reject: the call fails with an [*agentsvc.BudgetExhaustedError].
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

// setDefaultsAndValidate fills in omitted fields and returns an [*agentsvc.InvalidError] for the first invalid one. currency is
// used for a money budget without one.
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
		return agentsvc.NewInvalidError("on_exhausted", "%s needs a hard budget: a soft one holds nothing up", Pause)
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

// maxBudgets bounds the budgets of an app and of the platform: each model call compares itself with all of them.
const maxBudgets = 100

// AddBudget creates a budget of an app, or of the platform where app.ID is "". Usage of the current window that was
// recorded before counts from the start. If the name is taken it returns [tenancy.ErrExists].
func (s *Service) AddBudget(ctx context.Context, actor string, app tenancy.App, b Budget) (Balance, error) {
	b.App, b.ID = app.ID, agentsvc.NewID()
	if err := b.setDefaultsAndValidate(s.prices.CurrencyForPlan(app.Plan)); err != nil {
		return Balance{}, err
	}
	if err := s.checkBudgetCurrency(app, b); err != nil {
		return Balance{}, err
	}
	thresholds, err := json.Marshal(b.Thresholds)
	if err != nil {
		return Balance{}, err
	}
	since, _ := b.Window.Bounds(s.databaseNow(), b.location)
	err = s.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
		var n int
		err := tx.Query(ctx, func(r db.Row) error { return r.Scan(&n) }, `SELECT COUNT(*) FROM budget WHERE tenant = $1`, string(b.App))
		if err != nil {
			return err
		}
		if n >= maxBudgets {
			return agentsvc.NewInvalidError("name", "there are %d budgets, more are not allowed", n)
		}
		_, err = tx.Exec(ctx, `INSERT INTO budget (tenant, id, name, agent, key_id, owner_sub, model, unit, amount, currency, span, timezone, hard,
				on_exhausted, thresholds, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, stoa_now(), stoa_now())`,
			string(b.App), b.ID, b.Name, b.Scope.Agent, b.Scope.Key, b.Scope.User, b.Scope.Model, string(b.Unit), b.Amount, b.Currency,
			string(b.Window), b.Zone, b.Hard, b.OnExhausted, string(thresholds))
		if err != nil {
			return err
		}
		// The balance must exist before a call can reserve from the new budget, and it must include earlier usage.
		if _, err := rebuildBalanceTx(ctx, tx, b, since); err != nil {
			return err
		}
		if err := tenancy.InsertAuditEntry(ctx, tx, tenancy.AuditEntry{Actor: actor, Action: "budget.create", App: app.Name, AppID: b.App, Detail: b.auditDetail(nil, &b)}); err != nil {
			return err
		}
		return change.Record(ctx, tx, change.Budget, string(b.App))
	})
	if db.IsDuplicate(err) {
		return Balance{}, tenancy.Errorf(tenancy.ErrExists, "there is a budget %s", b.Name)
	}
	return s.publishBudgetChange(ctx, b, err)
}

// UpdateBudget replaces a budget by what edit returns for its current state. The row is locked meanwhile, so edit may
// be a partial change. Amount, Hard, OnExhausted and Thresholds can change; name, scope, unit, currency and window
// cannot, since the balances were counted by them. If there is no such budget it returns [tenancy.ErrNotFound].
func (s *Service) UpdateBudget(ctx context.Context, actor string, app tenancy.App, name string, edit func(was Budget) (Budget, error)) (Balance, error) {
	var b Budget
	err := s.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
		was, err := lockBudget(ctx, tx, app.ID, name)
		if err != nil {
			return err
		}
		if b, err = edit(was); err != nil {
			return err
		}
		if err := b.validateReplacement(was); err != nil {
			return err
		}
		thresholds, err := json.Marshal(b.Thresholds)
		if err != nil {
			return err
		}
		b.UpdatedBy = actor
		err = tx.Query(ctx, func(r db.Row) error {
			var updated int64
			err := r.Scan(&updated)
			b.UpdatedAt = time.UnixMicro(updated).UTC()
			return err
		}, `UPDATE budget SET amount = $3, hard = $4, on_exhausted = $5, thresholds = $6, updated_at = stoa_now(), updated_by = $7
			WHERE tenant = $1 AND id = $2 RETURNING updated_at`, string(b.App), b.ID, b.Amount, b.Hard, b.OnExhausted, string(thresholds), actor)
		if err != nil {
			return err
		}
		if err := tenancy.InsertAuditEntry(ctx, tx, tenancy.AuditEntry{Actor: actor, Action: "budget.update", App: app.Name, AppID: b.App, Detail: b.auditDetail(&was, &b)}); err != nil {
			return err
		}
		return change.Record(ctx, tx, change.Budget, string(b.App))
	})
	b.Name = name
	return s.publishBudgetChange(ctx, b, err)
}

// lockBudget reads a budget and locks its row until tx ends. The UPDATE changes nothing: it is the form of a row lock
// that both SQLite and PostgreSQL accept. If there is no such budget it returns errNoBudget.
func lockBudget(ctx context.Context, tx *db.Tx, app db.ID, name string) (b Budget, err error) {
	err = tx.Query(ctx, b.scanRow,
		`UPDATE budget SET name = name WHERE tenant = $1 AND name = $2 RETURNING `+budgetColumns, string(app), name)
	if err == nil && b.ID == "" {
		err = errNoBudget
	}
	return b, err
}

// validateReplacement completes b from was, which it is to replace. It returns an [*agentsvc.InvalidError] if a fixed field
// differs.
func (b *Budget) validateReplacement(was Budget) error {
	b.App, b.ID, b.CreatedAt = was.App, was.ID, was.CreatedAt
	if err := b.setDefaultsAndValidate(was.Currency); err != nil {
		return err
	}
	for _, f := range []struct {
		field   string
		changed bool
	}{
		{"name", b.Name != was.Name}, {"scope", b.Scope != was.Scope}, {"unit", b.Unit != was.Unit}, {"window", b.Window != was.Window}, {"timezone", b.Zone != was.Zone},
		{"currency", b.Currency != was.Currency},
	} {
		if f.changed {
			return agentsvc.NewInvalidError(f.field, "stays what it is: delete the budget and make another")
		}
	}
	return nil
}

// DeleteBudget deletes a budget with its balances and threshold events. If there is no such budget it returns
// [tenancy.ErrNotFound].
func (s *Service) DeleteBudget(ctx context.Context, actor string, app tenancy.App, name string) error {
	var b Budget
	err := s.db.Platform().RunTx(ctx, func(tx *db.Tx) (err error) {
		if b, err = lockBudget(ctx, tx, app.ID, name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM budget WHERE tenant = $1 AND id = $2`, string(b.App), b.ID); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM budget_gone WHERE budget = $1`, b.ID); err != nil {
			return err
		}
		for _, table := range []string{"budget_balance", "budget_event"} {
			if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE tenant = $1 AND budget = $2`, string(b.App), b.ID); err != nil {
				return err
			}
		}
		if err := tenancy.InsertAuditEntry(ctx, tx, tenancy.AuditEntry{Actor: actor, Action: "budget.delete", App: app.Name, AppID: b.App, Detail: b.auditDetail(&b, nil)}); err != nil {
			return err
		}
		return change.Record(ctx, tx, change.Budget, string(b.App))
	})
	b.Name = name
	_, err = s.publishBudgetChange(ctx, b, err)
	return err
}

var errNoBudget = tenancy.Errorf(tenancy.ErrNotFound, "there is no such budget")

// publishBudgetChange ends a change of b. If err is nil it reads the app's budgets again, signals the other processes,
// and returns the balance as far as it can be read; it fails only with err, because the change itself is committed.
func (s *Service) publishBudgetChange(ctx context.Context, b Budget, err error) (Balance, error) {
	if err != nil {
		return Balance{}, fmt.Errorf("change budget %s: %w", b.Name, err)
	}
	_, until := b.Window.Bounds(s.databaseNow(), b.location)
	balance := Balance{Budget: b, ResetsAt: until}
	s.feed.Publish(ctx, change.Budget, string(b.App), func(ctx context.Context) error {
		if err := s.readBudgets(ctx, b.App); err != nil {
			return err
		}
		of := s.budgets.budgetsOf(b.App)
		i := slices.IndexFunc(of, func(x Budget) bool { return x.ID == b.ID })
		if i < 0 { // the budget was deleted
			return nil
		}
		list, err := s.readBalances(ctx, of[i:i+1])
		if err != nil {
			return err
		}
		since, _ := of[i].Window.Bounds(s.databaseNow(), of[i].location)
		s.recordPassedThresholds(ctx, list[0], since)
		err = s.readThresholdEvents(ctx, b.App, list)
		balance = list[0]
		return err
	})
	return balance, nil
}

// ListBudgets reads the budgets of an app, or of the platform where app is "", with their balances and threshold
// events, by name.
func (s *Service) ListBudgets(ctx context.Context, app db.ID) ([]Balance, error) {
	if err := s.readBudgets(ctx, app); err != nil {
		return nil, err
	}
	list, err := s.readBalances(ctx, s.budgets.budgetsOf(app))
	if err != nil || len(list) == 0 {
		return list, err
	}
	return list, s.readThresholdEvents(ctx, app, list)
}

// FindBudget is [Service.ListBudgets] for one name. If there is no such budget it returns [tenancy.ErrNotFound].
func (s *Service) FindBudget(ctx context.Context, app db.ID, name string) (Balance, error) {
	list, err := s.ListBudgets(ctx, app)
	if err != nil {
		return Balance{}, err
	}
	i := slices.IndexFunc(list, func(b Balance) bool { return b.Name == name })
	if i < 0 {
		return Balance{}, errNoBudget
	}
	return list[i], nil
}

// readBalances reads the balances of the current windows. Amount and Hard come from the database as well, since the
// cached budgets may be older. A window without usage has no row yet: LEFT JOIN and COALESCE make it 0.
func (s *Service) readBalances(ctx context.Context, budgets []Budget) ([]Balance, error) {
	list := make([]Balance, len(budgets))
	var b db.Batch
	for i, x := range budgets {
		since, until := x.Window.Bounds(s.databaseNow(), x.location)
		list[i] = Balance{Budget: x, ResetsAt: until}
		b.Query(func(r db.Row) error {
			var updated int64
			err := r.Scan(&list[i].Committed, &list[i].Reserved, &list[i].Amount, &list[i].Hard, &updated, &list[i].UpdatedBy)
			list[i].UpdatedAt = time.UnixMicro(updated).UTC()
			return err
		},
			`SELECT COALESCE(b.committed, 0), COALESCE(b.reserved, 0), x.amount, x.hard, x.updated_at, x.updated_by FROM budget x
			LEFT JOIN budget_balance b ON b.tenant = x.tenant AND b.budget = x.id AND b.since = $3 WHERE x.tenant = $1 AND x.id = $2`,
			string(x.App), x.ID, since.UnixMicro())
	}
	if len(list) == 0 {
		return list, nil
	}
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read balances: %w", err)
	}
	return list, nil
}

// checkBudgetCurrency returns an [*agentsvc.InvalidError] if a money budget would count nothing because no charge is in its
// currency.
func (s *Service) checkBudgetCurrency(app tenancy.App, b Budget) error {
	native := s.prices.CurrencyForPlan(app.Plan)
	switch {
	case b.Unit != InMoney || b.App != "" && b.Currency == native:
		return nil
	case b.App != "" && native != "":
		return agentsvc.NewInvalidError("currency", "the app is charged in %s: a budget in another currency would count nothing", native)
	case !s.prices.CachedBook().HasCurrency(b.Currency):
		return agentsvc.NewInvalidError("currency", "there is no price book in %s: the budget would count nothing", b.Currency)
	}
	return nil
}

// auditDetail returns a change of b as the audit trail records it. before is nil for a new budget, after for a deleted
// one.
func (b Budget) auditDetail(before, after *Budget) map[string]any {
	d := map[string]any{"budget": b.Name}
	for word, x := range map[string]*Budget{"before": before, "after": after} {
		if x != nil {
			d[word] = map[string]any{
				"scope": x.Scope.String(), "unit": string(x.Unit), "amount": x.Amount, "currency": x.Currency, "window": string(x.Window),
				"timezone": x.Zone, "hard": x.Hard, "on_exhausted": x.OnExhausted, "thresholds": x.Thresholds,
			}
		}
	}
	return d
}
