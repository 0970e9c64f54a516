package usage

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/billing/price"
	"stoa/tenancy/db"
)

// Meter makes the usage rows of an app. The runtime of an app has one. It has no state of its own.
type Meter struct {
	service *Service
	tenant  db.ID
	plan    string
}

// NewMeter returns the meter of an app. plan is the name of its plan, "" for none.
func (s *Service) NewMeter(tenant db.ID, plan string) *Meter { return &Meter{s, tenant, plan} }

// chargeCurrency returns the currency in which the app is charged now, the same as [budget.Gate] uses.
func (m *Meter) chargeCurrency() string { return m.service.prices.CurrencyForPlan(m.plan) }

// RunFacts are what a run has appended to its task's log, or could not append because it lost its lease.
type RunFacts struct {
	// Turn and Epoch number the turn of the task and the lease under which it ran. Both are part of the rows' keys.
	Task   agentsvc.TaskID
	Turn   int64
	Epoch  int64
	Agent  string
	Owner  agentsvc.Owner
	Events []agentsvc.Event
	// RunTime is set once, when the run has ended: how long it worked. TurnEnded is set if its turn has ended too;
	// otherwise the turn is retried or waits.
	RunTime   time.Duration
	TurnEnded bool
	// Embedding is a call of an embedder, nil if the facts are others. No log has it.
	Embedding *Embedding
}

// Embedding is a call of an embedder.
type Embedding struct {
	// Call is the id of the call. It is the key of the usage row, which is written once.
	Call      string
	StartedAt time.Time
	Provider  string
	Model     string
	// Tokens are those of all Texts together.
	Texts, Tokens int64
}

// CountUsage adds the usage rows of f to b, the transaction that appends the events. A retry has no effect.
func (m *Meter) CountUsage(b *db.Batch, f RunFacts) {
	InsertRows(b, m.tenant, m.RowsOf(m.chargeCurrency(), f))
}

// WriteUsage writes the usage rows of f in a transaction of their own: for facts that no transaction of the log can
// include, such as those of a run that lost its lease. Usage that was spent counts in any case. While the database does
// not respond the rows are queued, see [Service.WritePending].
func (m *Meter) WriteUsage(ctx context.Context, f RunFacts) error {
	rows := m.RowsOf(m.chargeCurrency(), f)
	if len(rows) == 0 {
		return nil
	}
	if err := m.service.writeUsage(ctx, m.tenant, rows); err != nil {
		return fmt.Errorf("write usage of task %s: %w", f.Task, err)
	}
	return nil
}

// RowsOf returns the usage rows of f, charged in currency.
func (m *Meter) RowsOf(currency string, f RunFacts) []Row {
	var rows []Row
	add := func(key string, kind amount.Kind, at time.Time, q amount.Quantities) *Row {
		rows = append(rows, Row{Task: f.Task, Key: key, Agent: f.Agent, Owner: f.Owner, Usage: price.Usage{Kind: kind, At: at, Quantities: q}})
		return &rows[len(rows)-1]
	}
	for i, ev := range f.Events {
		// The key of a fact that has no id of its own is its position on the log. An event that is not on the log has
		// Seq 0 and gets a negative one.
		position := fmt.Sprintf("%d.%d", f.Epoch, cmp.Or(ev.Seq, -int64(i)-1))
		switch {
		case ev.Usage != nil:
			u := ev.Usage
			at := u.StartedAt
			if at.IsZero() {
				at = ev.At
			}
			// The call's own id is the key. So the log's transaction, SettleReservation and RecordUnreserved may all write
			// the row.
			row := add(cmp.Or(u.Call, position), amount.ModelCall, at, callQuantities(*u))
			row.Provider, row.Model, row.Estimated = u.Provider, u.Model, u.Estimated
		case ev.Result != nil:
			add(position, amount.ToolCall, ev.At, amount.Quantities{ToolCalls: 1})
		}
	}
	if e := f.Embedding; e != nil {
		row := add(e.Call, amount.Embedding, e.StartedAt, amount.Quantities{Embeddings: e.Texts, EmbeddingTokens: e.Tokens})
		row.Provider, row.Model = e.Provider, e.Model
	}
	if f.RunTime > 0 {
		q := amount.Quantities{RunTime: f.RunTime}
		if f.TurnEnded {
			q.Runs = 1
		}
		add(fmt.Sprintf("run.%d.%d", f.Turn, f.Epoch), amount.Run, time.Now(), q)
	}
	m.priceRows(currency, rows)
	return rows
}

// callQuantities returns the quantities of a model call.
func callQuantities(u agentsvc.Usage) amount.Quantities {
	return amount.Quantities{
		InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CacheReadTokens: u.CacheReadTokens, CacheWriteTokens: u.CacheWriteTokens,
		ReasoningTokens: u.ReasoningTokens, ModelCalls: 1,
	}
}

// priceRows limits the quantities of rows to what a row may hold (ClampToLimits), logs those that were beyond, and sets
// the prices.
func (m *Meter) priceRows(currency string, rows []Row) {
	for i := range rows {
		u := &rows[i]
		reported := u.Quantities
		if u.Quantities = reported.ClampToLimits(); u.Quantities != reported {
			m.service.log.Warn("impossible usage is recorded as the most that is possible", "tenant", m.tenant, "task", u.Task, "kind", u.Kind,
				"input_tokens", reported.InputTokens, "output_tokens", reported.OutputTokens)
		}
		u.Price = m.service.prices.CachedBook().PriceUsage(currency, u.Usage).ClampToLimits()
	}
}

// PriceCall returns the cost and the charge of a model call at the prices in force when it began. It writes nothing.
func (m *Meter) PriceCall(u agentsvc.Usage) price.Price {
	return m.service.prices.CachedBook().PriceUsage(m.chargeCurrency(), price.Usage{
		Kind: amount.ModelCall, At: u.StartedAt, Provider: u.Provider, Model: u.Model, Quantities: callQuantities(u).ClampToLimits(),
	}).ClampToLimits()
}
