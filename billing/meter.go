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
	s      *Service
	tenant db.ID
	plan   string
}

// Meter returns the meter of an app that is on a plan, "" = on none.
func (s *Service) Meter(tenant db.ID, plan string) *Meter { return &Meter{s, tenant, plan} }

// currency is that of the plan as this process knows it by now, which an [Allowance] goes by as well.
func (m *Meter) currency() string { return m.s.currency(m.plan) }

// Facts are what a run has put on the log of its task, or could not put there any more.
type Facts struct {
	Task   agentsvc.TaskID
	Turn   int64
	Epoch  int64
	Agent  string
	Owner  agentsvc.Owner
	Events []agentsvc.Event
	// Worked is how long the run was at work, where it is over; Ended says that its turn is.
	Worked time.Duration
	Ended  bool
}

// Count adds to b that what f tells of was used. It may do so again.
func (m *Meter) Count(b *db.Batch, f Facts) { insertUsage(b, m.tenant, m.rows(m.currency(), f)) }

// Write writes what f tells of by itself: where no transaction of the log could take it along. While the database does not answer
// that waits, see [Service.WritePending].
func (m *Meter) Write(ctx context.Context, f Facts) error {
	rows := m.rows(m.currency(), f)
	if len(rows) == 0 {
		return nil
	}
	if err := m.s.writeUsage(ctx, m.tenant, rows); err != nil {
		return fmt.Errorf("write usage of task %s: %w", f.Task, err)
	}
	return nil
}

// rows are the usage rows of f, charged in a currency.
func (m *Meter) rows(currency string, f Facts) []Usage {
	var rows []Usage
	add := func(key string, kind Kind, at time.Time, q Quantities) *Usage {
		rows = append(rows, Usage{Task: f.Task, Key: key, Kind: kind, At: at, Agent: f.Agent, Owner: f.Owner, Quantities: q})
		return &rows[len(rows)-1]
	}
	for i, ev := range f.Events {
		place := fmt.Sprintf("%d.%d", f.Epoch, cmp.Or(ev.Seq, -int64(i)-1))
		switch {
		case ev.Usage != nil:
			u := ev.Usage
			at := u.Began
			if at.IsZero() {
				at = ev.At
			}
			row := add(cmp.Or(u.Call, place), ModelCall, at, tokensOf(*u))
			row.Provider, row.Model, row.Estimated = u.Provider, u.Model, u.Estimated
		case ev.Result != nil:
			add(place, ToolCall, ev.At, Quantities{ToolCalls: 1})
		}
	}
	if f.Worked > 0 {
		q := Quantities{RunTime: f.Worked}
		if f.Ended {
			q.Runs = 1
		}
		add(fmt.Sprintf("run.%d.%d", f.Turn, f.Epoch), Run, time.Now(), q)
	}
	m.price(currency, rows)
	return rows
}

// tokensOf are the quantities of a model call.
func tokensOf(u agentsvc.Usage) Quantities {
	return Quantities{
		InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CacheReadTokens: u.CacheReadTokens, CacheWriteTokens: u.CacheWriteTokens,
		ReasoningTokens: u.ReasoningTokens, ModelCalls: 1,
	}
}

// price bounds rows to what one may hold and fills in what they cost.
func (m *Meter) price(currency string, rows []Usage) {
	for i := range rows {
		u := &rows[i]
		reported := u.Quantities
		if u.Quantities = reported.bounded(); u.Quantities != reported {
			m.s.log.Warn("usage that cannot be is written down as the most that can", "tenant", m.tenant, "task", u.Task, "kind", u.Kind,
				"input_tokens", reported.InputTokens, "output_tokens", reported.OutputTokens)
		}
		u.Worth = m.s.Worth(currency, *u).bounded()
	}
}

// Worth returns what a model call is worth at the prices in force.
func (m *Meter) Worth(u agentsvc.Usage) Worth {
	return m.s.Worth(m.currency(), Usage{Kind: ModelCall, At: u.Began, Provider: u.Provider, Model: u.Model, Quantities: tokensOf(u).bounded()}).bounded()
}

// Embedded writes that texts were made vectors, in a turn or outside of any.
func (m *Meter) Embedded(ctx context.Context, agent string, owner agentsvc.Owner, provider, model string, texts int) error {
	row := Usage{
		Key: "embedding." + agentsvc.NewID(), Kind: Embedding, At: time.Now(), Agent: agent, Owner: owner, Provider: provider, Model: model,
		Quantities: Quantities{Embeddings: int64(texts)},
	}
	return m.add(ctx, row)
}

func (m *Meter) add(ctx context.Context, row Usage) error {
	rows := []Usage{row}
	m.price(m.currency(), rows)
	if err := m.s.writeUsage(ctx, m.tenant, rows); err != nil {
		return fmt.Errorf("write usage %s: %w", row.Key, err)
	}
	return nil
}
