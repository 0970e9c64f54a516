package billing

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// Meter makes usage rows of what an app's runs do.
type Meter struct {
	service *Service
	tenant  db.ID
	plan    string
}

// NewMeter returns the meter of an app that is on a plan, "" = on none.
func (s *Service) NewMeter(tenant db.ID, plan string) *Meter { return &Meter{s, tenant, plan} }

// chargeCurrency is that of the plan as this process knows it by now, which an [Allowance] goes by as well.
func (m *Meter) chargeCurrency() string { return m.service.currencyForPlan(m.plan) }

// RunFacts are what a run has put on the log of its task, or could not put there any more.
type RunFacts struct {
	Task   agentsvc.TaskID
	Turn   int64
	Epoch  int64
	Agent  string
	Owner  agentsvc.Owner
	Events []agentsvc.Event
	// RunTime is how long the run was at work, where it is over; Ended says that its turn is.
	RunTime   time.Duration
	TurnEnded bool
}

// CountUsage adds to b that what f tells of was used. It may do so again.
func (m *Meter) CountUsage(b *db.Batch, f RunFacts) {
	insertUsage(b, m.tenant, m.usageRows(m.chargeCurrency(), f))
}

// WriteUsage writes what f tells of by itself: where no transaction of the log could take it along. While the database does not answer
// that waits, see [Service.WritePending].
func (m *Meter) WriteUsage(ctx context.Context, f RunFacts) error {
	rows := m.usageRows(m.chargeCurrency(), f)
	if len(rows) == 0 {
		return nil
	}
	if err := m.service.writeUsage(ctx, m.tenant, rows); err != nil {
		return fmt.Errorf("write usage of task %s: %w", f.Task, err)
	}
	return nil
}

// usageRows are the usage rows of f, charged in a currency.
func (m *Meter) usageRows(currency string, f RunFacts) []Usage {
	var rows []Usage
	add := func(key string, kind Kind, at time.Time, q Quantities) *Usage {
		rows = append(rows, Usage{Task: f.Task, Key: key, Kind: kind, At: at, Agent: f.Agent, Owner: f.Owner, Quantities: q})
		return &rows[len(rows)-1]
	}
	for i, ev := range f.Events {
		position := fmt.Sprintf("%d.%d", f.Epoch, cmp.Or(ev.Seq, -int64(i)-1))
		switch {
		case ev.Usage != nil:
			u := ev.Usage
			at := u.StartedAt
			if at.IsZero() {
				at = ev.At
			}
			row := add(cmp.Or(u.Call, position), ModelCall, at, callQuantities(*u))
			row.Provider, row.Model, row.Estimated = u.Provider, u.Model, u.Estimated
		case ev.Result != nil:
			add(position, ToolCall, ev.At, Quantities{ToolCalls: 1})
		}
	}
	if f.RunTime > 0 {
		q := Quantities{RunTime: f.RunTime}
		if f.TurnEnded {
			q.Runs = 1
		}
		add(fmt.Sprintf("run.%d.%d", f.Turn, f.Epoch), Run, time.Now(), q)
	}
	m.priceRows(currency, rows)
	return rows
}

// callQuantities are the quantities of a model call.
func callQuantities(u agentsvc.Usage) Quantities {
	return Quantities{
		InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CacheReadTokens: u.CacheReadTokens, CacheWriteTokens: u.CacheWriteTokens,
		ReasoningTokens: u.ReasoningTokens, ModelCalls: 1,
	}
}

// priceRows bounds rows to what one may hold and fills in what they cost.
func (m *Meter) priceRows(currency string, rows []Usage) {
	for i := range rows {
		u := &rows[i]
		reported := u.Quantities
		if u.Quantities = reported.clampToLimits(); u.Quantities != reported {
			m.service.log.Warn("usage that cannot be is written down as the most that can", "tenant", m.tenant, "task", u.Task, "kind", u.Kind,
				"input_tokens", reported.InputTokens, "output_tokens", reported.OutputTokens)
		}
		u.UsagePrice = m.service.PriceUsage(currency, *u).clampToLimits()
	}
}

// PriceCall returns what a model call is worth at the prices in force.
func (m *Meter) PriceCall(u agentsvc.Usage) UsagePrice {
	return m.service.PriceUsage(m.chargeCurrency(), Usage{Kind: ModelCall, At: u.StartedAt, Provider: u.Provider, Model: u.Model, Quantities: callQuantities(u).clampToLimits()}).clampToLimits()
}

// RecordEmbeddings writes that texts were made vectors, in a turn or outside of any.
func (m *Meter) RecordEmbeddings(ctx context.Context, agent string, owner agentsvc.Owner, provider, model string, texts int) error {
	row := Usage{
		Key: "embedding." + agentsvc.NewID(), Kind: Embedding, At: time.Now(), Agent: agent, Owner: owner, Provider: provider, Model: model,
		Quantities: Quantities{Embeddings: int64(texts)},
	}
	return m.writeRow(ctx, row)
}

func (m *Meter) writeRow(ctx context.Context, row Usage) error {
	rows := []Usage{row}
	m.priceRows(m.chargeCurrency(), rows)
	if err := m.service.writeUsage(ctx, m.tenant, rows); err != nil {
		return fmt.Errorf("write usage %s: %w", row.Key, err)
	}
	return nil
}
