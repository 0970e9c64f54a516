package billing

import (
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// Kind is the kind of fact that a usage row counts.
type Kind string

// The kinds, each with the quantities that its rows have.
const (
	// ModelCall has model_calls and the five token quantities.
	ModelCall Kind = "model"
	// ToolCall has tool_calls.
	ToolCall Kind = "tool"
	// Run has run_seconds, and runs in the row of the attempt that ended the turn.
	Run Kind = "run"
	// Embedding has embeddings.
	Embedding Kind = "embedding"
	// Storage has stored_bytes: one row for a UTC day.
	Storage Kind = "storage"
)

// Quantities are the amounts used, by meter. InputTokens includes CacheReadTokens and CacheWriteTokens, and
// OutputTokens includes ReasoningTokens, as model vendors report them; prices and invoices separate the classes
// (meterClasses).
type Quantities struct {
	InputTokens      int64
	OutputTokens     int64
	CacheReadTokens  int64
	CacheWriteTokens int64
	ReasoningTokens  int64
	ModelCalls       int64
	ToolCalls        int64
	Runs             int64
	RunTime          time.Duration
	// Embeddings counts texts.
	Embeddings  int64
	StoredBytes int64
}

// Tokens returns what a budget in tokens counts.
func (q Quantities) Tokens() int64 { return addCapped(q.InputTokens, q.OutputTokens) }

// Usage is a usage row: one fact that was counted. Task and Key are its key within the app. Inserting it a second time
// has no effect, so every writer may retry.
type Usage struct {
	// Task is "" for usage outside of any task.
	Task agentsvc.TaskID
	Key  string
	Kind Kind
	// At is when it was used; for a model call when the call began. It selects the price version, the window and the
	// month.
	At time.Time
	// Recorded is when the row was written, set by the database. Invoices and exports proceed by it.
	Recorded time.Time
	Agent    string
	Owner    agentsvc.Owner
	Provider string
	Model    string
	// Estimated is set if the vendor did not report the quantities.
	Estimated bool
	Quantities
	UsagePrice
}

// KeyID returns the id of the API key that made the call, "" if none did.
func (u Usage) KeyID() string { return apiKeyID(u.Owner) }

// apiKeyID returns the id of the API key that an owner is, "" if it is none. The subject of an API key is "key:" and
// its id.
func apiKeyID(o agentsvc.Owner) string {
	id, _ := strings.CutPrefix(o.Subject, "key:")
	if id == o.Subject {
		return ""
	}
	return id
}

// usageColumns are the columns of a row without tenant, which precedes them in usageTable, and recorded_at, which
// follows.
const usageColumns = `task, key, kind, at, agent, owner_iss, owner_sub, key_id, provider, model,
	input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, model_calls, tool_calls, runs, run_micros,
	embeddings, stored_bytes, cost, charge, currency, price_version, unpriced, estimated`

// usageTable inserts into table usage. A row whose key (tenant, task, key) exists already is skipped.
var usageTable = db.NewInsertTarget("usage", `tenant TEXT, task TEXT, key TEXT, kind TEXT, at BIGINT, agent TEXT, owner_iss TEXT, owner_sub TEXT, key_id TEXT,
	provider TEXT, model TEXT, input_tokens BIGINT, output_tokens BIGINT, cache_read_tokens BIGINT, cache_write_tokens BIGINT,
	reasoning_tokens BIGINT, model_calls BIGINT, tool_calls BIGINT, runs BIGINT, run_micros BIGINT, embeddings BIGINT, stored_bytes BIGINT,
	cost BIGINT, charge BIGINT, currency TEXT, price_version TEXT, unpriced BOOLEAN, estimated BOOLEAN, recorded_at = stoa_now()`, "tenant, task, key")

// rowValues returns the values of usageTable, in its order.
func (u Usage) rowValues(tenant db.ID) []any {
	return []any{
		string(tenant), string(u.Task), u.Key, string(u.Kind), u.At.UnixMicro(), u.Agent, u.Owner.Issuer, u.Owner.Subject, u.KeyID(),
		u.Provider, u.Model, u.InputTokens, u.OutputTokens, u.CacheReadTokens, u.CacheWriteTokens,
		u.ReasoningTokens, u.ModelCalls, u.ToolCalls, u.Runs, u.RunTime.Microseconds(), u.Embeddings, u.StoredBytes,
		int64(u.Cost), int64(u.Charge), u.Currency, u.Version, u.Unpriced, u.Estimated,
	}
}

// insertUsage adds the insertion of rows of a tenant to b. Rows that exist already stay as they are.
func insertUsage(b *db.Batch, tenant db.ID, rows []Usage) {
	values := make([][]any, len(rows))
	for i, u := range rows {
		values[i] = u.rowValues(tenant)
	}
	b.InsertRows(usageTable, values...)
}
