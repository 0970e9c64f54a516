package billing

import (
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// Kind says what kind of fact a usage row counts.
type Kind string

// The kinds. The quantities that each has are named beside it.
const (
	ModelCall Kind = "model"     // model_calls and the five of tokens
	ToolCall  Kind = "tool"      // tool_calls
	Run       Kind = "run"       // run_seconds, and runs where it came to its end
	Embedding Kind = "embedding" // embeddings
	Storage   Kind = "storage"   // stored_bytes, once a day
)

// Quantities are what was used of each meter. InputTokens includes those read from and written to the cache,
// OutputTokens those spent on reasoning.
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
	Embeddings       int64 // texts
	StoredBytes      int64
}

// Tokens is what budgets of tokens count.
func (q Quantities) Tokens() int64 { return addCapped(q.InputTokens, q.OutputTokens) }

// Usage is one row: a fact that was counted. Task and Key name the fact within its app: whoever writes it again writes
// nothing.
type Usage struct {
	Task      agentsvc.TaskID // "" = of none
	Key       string
	Kind      Kind
	At        time.Time // when it was used: a model call counts when it began
	Recorded  time.Time // when the row was written; set by the database
	Agent     string
	Owner     agentsvc.Owner
	Provider  string
	Model     string
	Estimated bool // the vendor did not say how much it was
	Quantities
	UsagePrice
}

// KeyID returns the id of the API key that made the call, "" if none did.
func (u Usage) KeyID() string { return apiKeyID(u.Owner) }

// apiKeyID is who an owner is whose subject is that of an API key.
func apiKeyID(o agentsvc.Owner) string {
	id, _ := strings.CutPrefix(o.Subject, "key:")
	if id == o.Subject {
		return ""
	}
	return id
}

// usageColumns are those of a row; the tenant goes before them, recorded_at after.
const usageColumns = `task, key, kind, at, agent, owner_iss, owner_sub, key_id, provider, model,
	input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, model_calls, tool_calls, runs, run_micros,
	embeddings, stored_bytes, cost, charge, currency, price_version, unpriced, estimated`

var usageTable = db.NewInsertTarget("usage", `tenant TEXT, task TEXT, key TEXT, kind TEXT, at BIGINT, agent TEXT, owner_iss TEXT, owner_sub TEXT, key_id TEXT,
	provider TEXT, model TEXT, input_tokens BIGINT, output_tokens BIGINT, cache_read_tokens BIGINT, cache_write_tokens BIGINT,
	reasoning_tokens BIGINT, model_calls BIGINT, tool_calls BIGINT, runs BIGINT, run_micros BIGINT, embeddings BIGINT, stored_bytes BIGINT,
	cost BIGINT, charge BIGINT, currency TEXT, price_version TEXT, unpriced BOOLEAN, estimated BOOLEAN, recorded_at = stoa_now()`, "tenant, task, key")

// rowValues returns the values of usageTable.
func (u Usage) rowValues(tenant db.ID) []any {
	return []any{
		string(tenant), string(u.Task), u.Key, string(u.Kind), u.At.UnixMicro(), u.Agent, u.Owner.Issuer, u.Owner.Subject, u.KeyID(),
		u.Provider, u.Model, u.InputTokens, u.OutputTokens, u.CacheReadTokens, u.CacheWriteTokens,
		u.ReasoningTokens, u.ModelCalls, u.ToolCalls, u.Runs, u.RunTime.Microseconds(), u.Embeddings, u.StoredBytes,
		int64(u.Cost), int64(u.Charge), u.Currency, u.Version, u.Unpriced, u.Estimated,
	}
}

// insertUsage adds rows of a tenant to b. Those that are there already stay as they are.
func insertUsage(b *db.Batch, tenant db.ID, rows []Usage) {
	values := make([][]any, len(rows))
	for i, u := range rows {
		values[i] = u.rowValues(tenant)
	}
	b.InsertRows(usageTable, values...)
}
