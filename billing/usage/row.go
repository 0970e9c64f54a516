package usage

import (
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/billing/price"
	"stoa/tenancy/db"
)

// Row is a row of table usage: one fact that was counted. Task and Key are its key within the app. Inserting it a
// second time has no effect, so every writer may retry.
type Row struct {
	// Task is "" for usage outside of any task.
	Task agentsvc.TaskID
	Key  string
	// Recorded is when the row was written, set by the database. Invoices and exports proceed by it.
	Recorded time.Time
	Agent    string
	Owner    agentsvc.Owner
	// Estimated is set if the vendor did not report the quantities.
	Estimated bool
	price.Usage
	price.Price
}

// MaxRecordDelay bounds the time between a row's recorded_at and its commit. It must be longer than any transaction: a
// row with an older recorded_at that is not visible now never will be. Invoices and exports keep marks for younger
// rows.
const MaxRecordDelay = 10 * time.Minute

// KeyID returns the id of the API key that made the call, "" if none did.
func (r Row) KeyID() string { return APIKeyID(r.Owner) }

// APIKeyID returns the id of the API key that an owner is, "" if it is none. The subject of an API key is "key:" and
// its id.
func APIKeyID(o agentsvc.Owner) string {
	id, _ := strings.CutPrefix(o.Subject, "key:")
	if id == o.Subject {
		return ""
	}
	return id
}

// Columns are the columns of a row without tenant, which precedes them in usageTable, and recorded_at, which
// follows.
const Columns = `task, key, kind, at, agent, owner_iss, owner_sub, key_id, provider, model,
	input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, model_calls, tool_calls, runs, run_micros,
	embeddings, embedding_tokens, stored_bytes, cost, charge, currency, price_version, unpriced, estimated`

// usageTable inserts into table usage. A row whose key (tenant, task, key) exists already is skipped.
var usageTable = db.NewInsertTarget("usage", `tenant TEXT, task TEXT, key TEXT, kind TEXT, at BIGINT, agent TEXT, owner_iss TEXT, owner_sub TEXT, key_id TEXT,
	provider TEXT, model TEXT, input_tokens BIGINT, output_tokens BIGINT, cache_read_tokens BIGINT, cache_write_tokens BIGINT,
	reasoning_tokens BIGINT, model_calls BIGINT, tool_calls BIGINT, runs BIGINT, run_micros BIGINT, embeddings BIGINT, embedding_tokens BIGINT, stored_bytes BIGINT,
	cost BIGINT, charge BIGINT, currency TEXT, price_version TEXT, unpriced BOOLEAN, estimated BOOLEAN, recorded_at = stoa_now()`, "tenant, task, key")

// rowValues returns the values of usageTable, in its order.
func (r Row) rowValues(tenant db.ID) []any {
	return []any{
		string(tenant), string(r.Task), r.Key, string(r.Kind), r.At.UnixMicro(), r.Agent, r.Owner.Issuer, r.Owner.Subject, r.KeyID(),
		r.Provider, r.Model, r.InputTokens, r.OutputTokens, r.CacheReadTokens, r.CacheWriteTokens,
		r.ReasoningTokens, r.ModelCalls, r.ToolCalls, r.Runs, r.RunTime.Microseconds(), r.Embeddings, r.EmbeddingTokens, r.StoredBytes,
		int64(r.Cost), int64(r.Charge), r.Currency, r.Version, r.Unpriced, r.Estimated,
	}
}

// InsertRows adds the insertion of rows of a tenant to b. Rows that exist already stay as they are.
func InsertRows(b *db.Batch, tenant db.ID, rows []Row) {
	values := make([][]any, len(rows))
	for i, u := range rows {
		values[i] = u.rowValues(tenant)
	}
	b.InsertRows(usageTable, values...)
}

// Scan reads Columns, then recorded_at, then the columns of more.
func (r *Row) Scan(row db.Row, more ...any) error {
	var at, run, recorded int64
	// key_id is not kept: it follows from the owner ([Row.KeyID]).
	var key string
	err := row.Scan(append([]any{
		(*string)(&r.Task), &r.Key, (*string)(&r.Kind), &at, &r.Agent, &r.Owner.Issuer, &r.Owner.Subject, &key, &r.Provider, &r.Model,
		&r.InputTokens, &r.OutputTokens, &r.CacheReadTokens, &r.CacheWriteTokens, &r.ReasoningTokens, &r.ModelCalls, &r.ToolCalls, &r.Runs, &run,
		&r.Embeddings, &r.EmbeddingTokens, &r.StoredBytes, (*int64)(&r.Cost), (*int64)(&r.Charge), &r.Currency, &r.Version, &r.Unpriced, &r.Estimated, &recorded,
	}, more...)...)
	r.At, r.Recorded, r.RunTime = time.UnixMicro(at).UTC(), time.UnixMicro(recorded).UTC(), amount.Duration(run)
	return err
}
