package billing

import (
	"fmt"
	"slices"
	"strings"
	"sync"
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
func (q Quantities) Tokens() int64 { return q.InputTokens + q.OutputTokens }

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
	Worth
}

// KeyID returns the id of the API key that made the call, "" if none did.
func (u Usage) KeyID() string { return keyID(u.Owner) }

// keyID is who an owner is whose subject is that of an API key.
func keyID(o agentsvc.Owner) string {
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

// sharedColumns are the same in all rows that one statement inserts: these are of one task.
var sharedColumns = []string{"tenant", "task", "agent", "owner_iss", "owner_sub", "key_id"}

func (u Usage) shared(tenant db.ID) []any {
	return []any{string(tenant), string(u.Task), u.Agent, u.Owner.Issuer, u.Owner.Subject, u.KeyID()}
}

// ownColumns are what else rows of each kind have, in the order of [Usage.own]. The rest of a row is nothing, which costs
// less to say in the statement than to hand over.
var ownColumns = map[Kind][]string{
	ModelCall: append([]string{
		"input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "model_calls", "provider", "model", "estimated",
	}, worthColumns...),
	ToolCall:  append([]string{"tool_calls"}, worthColumns...),
	Run:       append([]string{"runs", "run_micros"}, worthColumns...),
	Embedding: append([]string{"embeddings", "provider", "model"}, worthColumns...),
	Storage:   append([]string{"stored_bytes"}, worthColumns...),
}

var worthColumns = []string{"cost", "charge", "currency", "price_version", "unpriced", "key", "at"}

func (u Usage) own() []any {
	var own []any
	switch u.Kind {
	case ModelCall:
		own = append(own, u.InputTokens, u.OutputTokens, u.CacheReadTokens, u.CacheWriteTokens, u.ReasoningTokens, u.ModelCalls, u.Provider, u.Model, u.Estimated)
	case ToolCall:
		own = append(own, u.ToolCalls)
	case Run:
		own = append(own, u.Runs, u.RunTime.Microseconds())
	case Embedding:
		own = append(own, u.Embeddings, u.Provider, u.Model)
	case Storage:
		own = append(own, u.StoredBytes)
	}
	return append(own, int64(u.Cost), int64(u.Charge), u.Currency, u.Version, u.Unpriced, u.Key, u.At.UnixMicro())
}

// maxInsert bounds how many rows one statement inserts.
const maxInsert = 4

// insertUsage adds rows of a task of a tenant to b. Those that are there already stay as they are.
func insertUsage(b *db.Batch, tenant db.ID, rows []Usage) {
	for part := range slices.Chunk(rows, maxInsert) {
		sql, args := usageInsert(tenant, part)
		b.Exec(nil, sql, args...)
	}
}

// usageInsert returns the statement that inserts rows, and its arguments.
func usageInsert(tenant db.ID, rows []Usage) (sql string, args []any) {
	args = append(make([]any, 0, 32), rows[0].shared(tenant)...)
	var kinds [maxInsert]Kind
	for i, u := range rows {
		kinds[i] = u.Kind
		args = append(args, u.own()...)
	}
	if text, ok := usageTexts.Load(kinds); ok {
		return text.(string), args
	}
	sql = usageSQL(kinds[:len(rows)])
	usageTexts.Store(kinds, sql)
	return sql, args
}

var usageTexts sync.Map // kinds of rows to SQL

func usageSQL(kinds []Kind) string {
	columns := strings.FieldsFunc(usageColumns, func(r rune) bool { return strings.ContainsRune(", \t\n", r) })
	param := len(sharedColumns)
	values := make([]string, len(kinds))
	for i, kind := range kinds {
		row := []string{"$1"}
		for _, c := range columns {
			shared, own := slices.Index(sharedColumns, c), slices.Index(ownColumns[kind], c)
			switch {
			case c == "kind":
				row = append(row, "'"+string(kind)+"'")
			case shared >= 0:
				row = append(row, fmt.Sprintf("$%d", 1+shared))
			case own >= 0:
				row = append(row, fmt.Sprintf("$%d", 1+param+own))
			case c == "provider" || c == "model":
				row = append(row, "''")
			case c == "estimated":
				row = append(row, "FALSE")
			default:
				row = append(row, "0")
			}
		}
		param += len(ownColumns[kind])
		values[i] = "(" + strings.Join(row, ", ") + ", stoa_now())"
	}
	return "INSERT INTO usage (tenant, " + usageColumns + ", recorded_at) VALUES " + strings.Join(values, ", ") + " ON CONFLICT (tenant, task, key) DO NOTHING"
}
