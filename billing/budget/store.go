package budget

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/billing/change"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// maxBudgets bounds the budgets of an app and of the platform: each model call compares itself with all of them.
const maxBudgets = 100

// AddBudget creates a budget of an app, or of the platform where app.ID is "". Usage of the current window that was
// recorded before counts from the start. If the name is taken it returns [agentsvc.CodeExists].
func (s *Service) AddBudget(ctx context.Context, actor audit.Actor, app tenancy.App, b Budget) (Balance, error) {
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
		if err := audit.Insert(ctx, tx, audit.Entry{Actor: actor, Action: "budget.create", App: app.Name, AppID: b.App, Detail: b.auditDetail(nil, &b)}); err != nil {
			return err
		}
		return change.Record(ctx, tx, change.Budget, string(b.App))
	})
	if db.IsDuplicate(err) {
		return Balance{}, agentsvc.NewError(agentsvc.CodeExists, "there is a budget %s", b.Name)
	}
	return s.publishBudgetChange(ctx, b, err)
}

// UpdateBudget replaces a budget by what edit returns for its current state. The row is locked meanwhile, so edit may
// be a partial change. Amount, Hard, OnExhausted and Thresholds can change; name, scope, unit, currency and window
// cannot, since the balances were counted by them. If there is no such budget it returns [agentsvc.CodeNotFound].
func (s *Service) UpdateBudget(ctx context.Context, actor audit.Actor, app tenancy.App, name string, edit func(was Budget) (Budget, error)) (Balance, error) {
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
		b.UpdatedBy = actor.Name
		err = tx.Query(ctx, func(r db.Row) error {
			var updated int64
			err := r.Scan(&updated)
			b.UpdatedAt = time.UnixMicro(updated).UTC()
			return err
		}, `UPDATE budget SET amount = $3, hard = $4, on_exhausted = $5, thresholds = $6, updated_at = stoa_now(), updated_by = $7
			WHERE tenant = $1 AND id = $2 RETURNING updated_at`, string(b.App), b.ID, b.Amount, b.Hard, b.OnExhausted, string(thresholds), actor.Name)
		if err != nil {
			return err
		}
		if err := audit.Insert(ctx, tx, audit.Entry{Actor: actor, Action: "budget.update", App: app.Name, AppID: b.App, Detail: b.auditDetail(&was, &b)}); err != nil {
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

// validateReplacement completes b from was, which it is to replace. It returns an error with [agentsvc.CodeInvalid] if
// a fixed field differs.
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
			return agentsvc.NewInvalidError(f.field, "cannot be changed: delete the budget and create another")
		}
	}
	return nil
}

// DeleteBudget deletes a budget with its balances and threshold events. If there is no such budget it returns
// [agentsvc.CodeNotFound].
func (s *Service) DeleteBudget(ctx context.Context, actor audit.Actor, app tenancy.App, name string) error {
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
		if err := audit.Insert(ctx, tx, audit.Entry{Actor: actor, Action: "budget.delete", App: app.Name, AppID: b.App, Detail: b.auditDetail(&b, nil)}); err != nil {
			return err
		}
		return change.Record(ctx, tx, change.Budget, string(b.App))
	})
	b.Name = name
	_, err = s.publishBudgetChange(ctx, b, err)
	return err
}

var errNoBudget = agentsvc.NewError(agentsvc.CodeNotFound, "there is no such budget")

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

// FindBudget is [Service.ListBudgets] for one name. If there is no such budget it returns [agentsvc.CodeNotFound].
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

// checkBudgetCurrency returns an error with [agentsvc.CodeInvalid] if a money budget would count nothing because no
// charge is in its currency.
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
