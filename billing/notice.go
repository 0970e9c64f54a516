package billing

import (
	"context"
	"fmt"

	"stoa/tenancy/db"
)

// Notice tells of a budget that has passed a threshold.
type Notice struct {
	Passing
	AppName  string // "" = the platform
	Scope    Scope
	Unit     Unit
	Currency string
}

// ID is the same whenever the notice is sent.
func (n Notice) ID() string {
	return fmt.Sprintf("%s_%d_%d", n.Passing.ID, n.Since.UnixMicro(), n.Threshold)
}

// Noticer is a [Sink] that is told of passed thresholds as well. It may be told of one again.
type Noticer interface {
	Notify(ctx context.Context, n Notice) error
}

// perNotice bounds how many notices are sent between two batches.
const perNotice = 100

// notify sends what the sink was not told of yet and has happened since its export began, the oldest first.
func (e *Exporter) notify(ctx context.Context, x *exportState) error {
	to, ok := e.sinks[x.name].(Noticer)
	if !ok {
		return nil
	}
	var list []Notice
	err := e.s.ask(ctx, func(r db.Row) error {
		var n Notice
		err := n.scan(r, &n.AppName, &n.Scope.Agent, &n.Scope.Key, &n.Scope.User, &n.Scope.Model, (*string)(&n.Unit), &n.Currency)
		list = append(list, n)
		return err
	}, `SELECT `+passingColumns+`, COALESCE(a.name, e.tenant), x.agent, x.key_id, x.owner_sub, x.model, x.unit, x.currency
		FROM budget_event e JOIN budget x ON x.tenant = e.tenant AND x.id = e.budget LEFT JOIN app a ON a.tenant = e.tenant
		WHERE NOT e.told AND e.at >= $1 ORDER BY e.at, e.budget, e.threshold LIMIT $2`, x.since, perNotice)
	if err != nil {
		return fmt.Errorf("look for thresholds that export %s does not know of: %w", x.name, err)
	}
	for _, n := range list {
		sending, cancel := context.WithTimeout(ctx, exportTime)
		err := to.Notify(sending, n)
		cancel()
		if err != nil {
			return fmt.Errorf("tell export %s of a threshold of budget %s: %w", x.name, n.Budget, err)
		}
		var b db.Batch
		b.Exec(nil, `UPDATE budget_event SET told = TRUE WHERE tenant = $1 AND budget = $2 AND since = $3 AND threshold = $4`,
			string(n.App), n.Passing.ID, n.Since.UnixMicro(), n.Threshold)
		if err := e.s.db.Platform().Do(ctx, &b); err != nil {
			return fmt.Errorf("note that export %s knows of a threshold: %w", x.name, err)
		}
	}
	return nil
}
