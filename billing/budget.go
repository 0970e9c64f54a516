package billing

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Budget bounds what model calls may use in a window: those of an app or, where App is "", of all apps together.
type Budget struct {
	App    db.ID
	ID     string
	Name   string
	Scope  Scope
	Unit   Unit
	Amount int64 // for [InMoney] nano-units
	// Currency is that of the amount where it is money. What is charged in another currency does not count, and is
	// refused where the budget is hard and none of its scope is in that currency.
	Currency    string
	Window      Window
	Zone        string // as the time zone database names it; "" = UTC
	Hard        bool   // calls beyond it are not made
	OnExhausted string
	Thresholds  []int // per cent of the amount, at which there is an event
	CreatedAt   time.Time
	UpdatedAt   time.Time
	UpdatedBy   string // who changed it last; "" = nobody since it was made

	location *time.Location
}

// Scope is which calls a budget is for. What is "" does not matter; Model is a pattern of provider/model, or of a model's
// name alone.
type Scope struct {
	Agent string
	Key   string // id of an API key
	User  string // subject, whoever vouches for it
	Model string
}

// coversCall reports whether a call is one of the scope. Without a model all are.
func (s Scope) coversCall(agent string, owner agentsvc.Owner, provider, model string) bool {
	return (s.Agent == "" || s.Agent == agent) && (s.Key == "" || s.Key == apiKeyID(owner)) && (s.User == "" || s.User == owner.Subject) &&
		(model == "" || s.coversModel(provider, model))
}

// coversModel reports whether a model is one of the scope.
func (s Scope) coversModel(provider, model string) bool {
	return MatchesModel(s.Model, provider, model)
}

// String names what the scope narrows a budget to.
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
	InTokens Unit = "tokens" // input and output
	InCalls  Unit = "calls"  // model calls
	InMoney  Unit = "money"  // charges of model calls
)

// What becomes of a call that a hard budget has no room for.
const (
	Reject = "reject" // it fails
	Pause  = "pause"  // its task waits until there is room again
)

var defaultThresholds = []int{80, 95, 100}

// Balance is a budget with how far it is used up in the window under way.
type Balance struct {
	Budget
	Committed        int64
	Reserved         int64            // by calls under way
	ResetsAt         time.Time        // zero = never
	PassedThresholds []ThresholdEvent // the thresholds, in this window; of those alone that are listed
}

// Remaining is what is left for further calls, 0 where more was used than there was.
func (b Balance) Remaining() int64 {
	return max(0, subtractCapped(subtractCapped(b.Amount, b.Committed), b.Reserved))
}

// setDefaultsAndValidate checks a budget and fills in what it leaves out.
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
	case !isValidName(b.Name):
		return invalidField("name", "must be 1 to %d letters, digits, and . _ - between them", maxName)
	case b.Unit != InTokens && b.Unit != InCalls && b.Unit != InMoney:
		return invalidField("unit", "must be %s, %s or %s", InTokens, InCalls, InMoney)
	case b.Amount < 0:
		return invalidField("amount", "must be a whole number, 0 or more; money is counted in nano-units")
	case !slices.Contains(Windows, b.Window):
		return invalidField("window", "must be one of %s", strings.ReplaceAll(strings.Trim(fmt.Sprint(Windows), "[]"), " ", ", "))
	case err != nil || b.Zone == "Local":
		return invalidField("timezone", "%.40q is no time zone, such as Europe/Berlin", b.Zone)
	case b.OnExhausted != Reject && b.OnExhausted != Pause:
		return invalidField("on_exhausted", "must be %s or %s", Reject, Pause)
	case b.OnExhausted == Pause && !b.Hard:
		return invalidField("on_exhausted", "%s needs a hard budget: a soft one holds nothing up", Pause)
	case b.Unit == InMoney && !currencyPattern.MatchString(b.Currency):
		return invalidField("currency", "is missing: neither the app's plan nor a price book names one")
	case b.Unit != InMoney && b.Currency != "":
		return invalidField("currency", "is for budgets of money alone")
	}
	for _, part := range []string{b.Scope.Agent, b.Scope.Key, b.Scope.User, b.Scope.Model} {
		if len(part) > maxPatternBytes {
			return invalidField("scope", "holds a name of more than %d bytes", maxPatternBytes)
		}
	}
	b.Thresholds = slices.Compact(slices.Sorted(slices.Values(b.Thresholds)))
	for _, t := range b.Thresholds {
		if t < 1 || t > 100 || len(b.Thresholds) > 10 {
			return invalidField("thresholds", "must be at most ten percentages from 1 to 100")
		}
	}
	return nil
}

// maxBudgets bounds the budgets of an app: each call of a model looks at all that apply.
const maxBudgets = 100

// AddBudget makes a budget. What was used in the window under way counts. One of this name that is there already is
// [ErrExists].
func (s *Service) AddBudget(ctx context.Context, actor string, app tenancy.App, b Budget) (Balance, error) {
	b.App, b.ID = app.ID, agentsvc.NewID()
	if err := b.setDefaultsAndValidate(s.currencyForPlan(app.Plan)); err != nil {
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
			return invalidField("name", "there are %d budgets, more are not allowed", n)
		}
		_, err = tx.Exec(ctx, `INSERT INTO budget (tenant, id, name, agent, key_id, owner_sub, model, unit, amount, currency, span, timezone, hard,
				on_exhausted, thresholds, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, stoa_now(), stoa_now())`,
			string(b.App), b.ID, b.Name, b.Scope.Agent, b.Scope.Key, b.Scope.User, b.Scope.Model, string(b.Unit), b.Amount, b.Currency,
			string(b.Window), b.Zone, b.Hard, b.OnExhausted, string(thresholds))
		if err != nil {
			return err
		}
		if _, err := rebuildBalanceTx(ctx, tx, b, since); err != nil {
			return err
		}
		if err := tenancy.InsertAuditEntry(ctx, tx, tenancy.AuditEntry{Actor: actor, Action: "budget.create", App: app.Name, AppID: b.App, Detail: b.auditDetail(nil, &b)}); err != nil {
			return err
		}
		return recordChange(ctx, tx, topicBudget, string(b.App))
	})
	if db.IsDuplicate(err) {
		return Balance{}, errorWithMessage(ErrExists, "there is a budget %s", b.Name)
	}
	return s.publishBudgetChange(ctx, b, err)
}

// UpdateBudget has edit say what a budget becomes, given what it is, while nobody else can change it. How much it is and
// what becomes of calls beyond it can change; its name, scope, unit and window stay what they are. One that is not there is
// [ErrNotFound].
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
			b.UpdatedAt = timeFromMicros(updated)
			return err
		}, `UPDATE budget SET amount = $3, hard = $4, on_exhausted = $5, thresholds = $6, updated_at = stoa_now(), updated_by = $7
			WHERE tenant = $1 AND id = $2 RETURNING updated_at`, string(b.App), b.ID, b.Amount, b.Hard, b.OnExhausted, string(thresholds), actor)
		if err != nil {
			return err
		}
		if err := tenancy.InsertAuditEntry(ctx, tx, tenancy.AuditEntry{Actor: actor, Action: "budget.update", App: app.Name, AppID: b.App, Detail: b.auditDetail(&was, &b)}); err != nil {
			return err
		}
		return recordChange(ctx, tx, topicBudget, string(b.App))
	})
	b.Name = name
	return s.publishBudgetChange(ctx, b, err)
}

// lockBudget reads a budget and holds it until tx ends: whoever else is to change it waits.
func lockBudget(ctx context.Context, tx *db.Tx, app db.ID, name string) (b Budget, err error) {
	err = tx.Query(ctx, b.scanRow,
		`UPDATE budget SET name = name WHERE tenant = $1 AND name = $2 RETURNING `+budgetColumns, string(app), name)
	if err == nil && b.ID == "" {
		err = errNoBudget
	}
	return b, err
}

// validateReplacement completes b, which is to take the place of was, or says what it must not change.
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
			return invalidField(f.field, "stays what it is: delete the budget and make another")
		}
	}
	return nil
}

// DeleteBudget removes a budget. One that is not there is [ErrNotFound].
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
		return recordChange(ctx, tx, topicBudget, string(b.App))
	})
	b.Name = name
	_, err = s.publishBudgetChange(ctx, b, err)
	return err
}

var errNoBudget = errorWithMessage(ErrNotFound, "there is no such budget")

// publishBudgetChange has every process know of a change of b that ended in err, and returns how b stands, as far as that can be read.
func (s *Service) publishBudgetChange(ctx context.Context, b Budget, err error) (Balance, error) {
	if err != nil {
		return Balance{}, fmt.Errorf("change budget %s: %w", b.Name, err)
	}
	_, until := b.Window.Bounds(s.databaseNow(), b.location)
	balance := Balance{Budget: b, ResetsAt: until}
	s.reloadAfterChange(ctx, func(ctx context.Context) error {
		if err := s.readBudgets(ctx, b.App); err != nil {
			return err
		}
		of := s.budgets.budgetsOf(b.App)
		i := slices.IndexFunc(of, func(x Budget) bool { return x.ID == b.ID })
		if i < 0 { // it is deleted
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
	s.bus.Publish(topicBudget, string(b.App))
	return balance, nil
}

// ListBudgets returns the budgets of an app, or of the platform where it is "", by name.
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

// FindBudget returns the budget of an app, or of the platform where it is "", by name. One that is not there is [ErrNotFound].
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

// readBalances reads how far budgets are used up, and how much they are by now.
func (s *Service) readBalances(ctx context.Context, budgets []Budget) ([]Balance, error) {
	list := make([]Balance, len(budgets))
	var b db.Batch
	for i, x := range budgets {
		since, until := x.Window.Bounds(s.databaseNow(), x.location)
		list[i] = Balance{Budget: x, ResetsAt: until}
		b.Query(func(r db.Row) error {
			var updated int64
			err := r.Scan(&list[i].Committed, &list[i].Reserved, &list[i].Amount, &list[i].Hard, &updated, &list[i].UpdatedBy)
			list[i].UpdatedAt = timeFromMicros(updated)
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

// currencyForPlan is that of the money of an app on a plan: the plan's, else that of the version of the price book made first, so
// that none made later changes it. It is "" where there is neither.
func (s *Service) currencyForPlan(plan string) string {
	p, _ := s.CachedPlan(plan)
	return cmp.Or(p.Currency, s.priceBook.Load().defaultCurrency)
}

// checkBudgetCurrency says what is wrong with the currency of a budget of money.
func (s *Service) checkBudgetCurrency(app tenancy.App, b Budget) error {
	native := s.currencyForPlan(app.Plan)
	inBook := func(v PriceVersion) bool { return v.Currency == b.Currency }
	switch {
	case b.Unit != InMoney || b.App != "" && b.Currency == native:
		return nil
	case b.App != "" && native != "":
		return invalidField("currency", "the app is charged in %s: a budget in another currency would count nothing", native)
	case !slices.ContainsFunc(s.priceBook.Load().versions, inBook):
		return invalidField("currency", "there is no price book in %s: the budget would count nothing", b.Currency)
	}
	return nil
}

// auditDetail is what the audit trail tells of a change of b; nil = it was, or is, not there.
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
