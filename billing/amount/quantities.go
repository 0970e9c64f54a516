// Package amount has the amounts of billing: quantities of usage by meter, and money. They are whole numbers; sums do
// not overflow, in Go and in SQL they stop at the largest int64.
package amount

import (
	"time"
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
	// Embedding has embeddings and EmbeddingTokens.
	Embedding Kind = "embedding"
	// Storage has stored_bytes: one row for a UTC day.
	Storage Kind = "storage"
)

// Quantities are the amounts used, by meter. InputTokens includes CacheReadTokens and CacheWriteTokens, and
// OutputTokens includes ReasoningTokens, as model vendors report them; prices and invoices separate the classes
// (MeterClasses).
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
	Embeddings int64
	// EmbeddingTokens are the tokens of these texts, as Stoa counts them. Budgets count them; they have no price, since texts
	// have one.
	EmbeddingTokens int64
	StoredBytes     int64
}

// Tokens returns what a budget in tokens counts.
func (q Quantities) Tokens() int64 { return Add(Add(q.InputTokens, q.OutputTokens), q.EmbeddingTokens) }

// Add returns the sums of two sets of quantities, each limited as by Add.
func (q Quantities) Add(p Quantities) Quantities {
	return Quantities{
		InputTokens: Add(q.InputTokens, p.InputTokens), OutputTokens: Add(q.OutputTokens, p.OutputTokens),
		CacheReadTokens: Add(q.CacheReadTokens, p.CacheReadTokens), CacheWriteTokens: Add(q.CacheWriteTokens, p.CacheWriteTokens),
		ReasoningTokens: Add(q.ReasoningTokens, p.ReasoningTokens), ModelCalls: Add(q.ModelCalls, p.ModelCalls),
		ToolCalls: Add(q.ToolCalls, p.ToolCalls), Runs: Add(q.Runs, p.Runs), RunTime: time.Duration(Add(int64(q.RunTime), int64(p.RunTime))),
		Embeddings: Add(q.Embeddings, p.Embeddings), EmbeddingTokens: Add(q.EmbeddingTokens, p.EmbeddingTokens), StoredBytes: Add(q.StoredBytes, p.StoredBytes),
	}
}

// The largest values that a usage row may have. A model or tool that reports more is wrong, and the sums would lose
// their meaning. With MaxTokens, a sum of 64 bits holds eight million calls of the largest size.
const (
	// MaxTokens bounds each kind of tokens, and the counts of calls, runs and texts.
	MaxTokens = 1 << 40
	// MaxStoredBytes bounds [Quantities.StoredBytes].
	MaxStoredBytes = 1 << 53
	// MaxRunTime bounds the run time of one attempt.
	MaxRunTime = 365 * 24 * time.Hour
	// MaxPrice bounds cost and charge of a row, in nano-units: a hundred million of a currency.
	MaxPrice = 100_000_000_000_000_000
)

// ClampToLimits returns q with each quantity between 0 and its bound.
func (q Quantities) ClampToLimits() Quantities {
	for _, n := range []*int64{
		&q.InputTokens, &q.OutputTokens, &q.CacheReadTokens, &q.CacheWriteTokens, &q.ReasoningTokens, &q.ModelCalls, &q.ToolCalls, &q.Runs, &q.Embeddings,
		&q.EmbeddingTokens,
	} {
		*n = min(max(0, *n), MaxTokens)
	}
	q.RunTime = min(max(0, q.RunTime), MaxRunTime)
	q.StoredBytes = min(max(0, q.StoredBytes), MaxStoredBytes)
	return q
}

// Meters are the quantities that can have a price, by their names in the API.
var Meters = []string{
	"input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "model_calls", "tool_calls", "runs",
	"run_seconds", "embeddings", "stored_bytes",
}

// MeterClass is a class of usage that is charged by itself. The classes do not overlap: input_tokens here excludes the
// cache tokens that [Quantities.InputTokens] includes.
type MeterClass struct {
	// FallbackMeter is the meter by whose price the class is charged if it has none of its own; "" for none.
	Meter, FallbackMeter string
	Kind                 Kind
	// Unit is how many of what Quantity returns are one unit of the meter: microseconds to a second for run_seconds,
	// else 1.
	Unit     int64
	Quantity func(Quantities) int64
}

// MeterClasses are the classes of all meters.
var MeterClasses = []MeterClass{
	{"input_tokens", "", ModelCall, 1, func(q Quantities) int64 {
		return max(0, Subtract(Subtract(q.InputTokens, q.CacheReadTokens), q.CacheWriteTokens))
	}},
	{"cache_read_tokens", "input_tokens", ModelCall, 1, func(q Quantities) int64 { return q.CacheReadTokens }},
	{"cache_write_tokens", "input_tokens", ModelCall, 1, func(q Quantities) int64 { return q.CacheWriteTokens }},
	{"output_tokens", "", ModelCall, 1, func(q Quantities) int64 { return max(0, Subtract(q.OutputTokens, q.ReasoningTokens)) }},
	{"reasoning_tokens", "output_tokens", ModelCall, 1, func(q Quantities) int64 { return q.ReasoningTokens }},
	{"model_calls", "", ModelCall, 1, func(q Quantities) int64 { return q.ModelCalls }},
	{"tool_calls", "", ToolCall, 1, func(q Quantities) int64 { return q.ToolCalls }},
	{"runs", "", Run, 1, func(q Quantities) int64 { return q.Runs }},
	{"run_seconds", "", Run, int64(time.Second / time.Microsecond), func(q Quantities) int64 { return q.RunTime.Microseconds() }},
	{"embeddings", "", Embedding, 1, func(q Quantities) int64 { return q.Embeddings }},
	{"stored_bytes", "", Storage, 1, func(q Quantities) int64 { return q.StoredBytes }},
}

// MeterQuantity returns the quantity of a meter in whole units, rounded up. The classes of tokens do not overlap, see
// [MeterClass]. It is 0 for an unknown meter.
func (q Quantities) MeterQuantity(meter string) int64 {
	for _, c := range MeterClasses {
		if c.Meter == meter {
			return CeilDiv(c.Quantity(q), c.Unit)
		}
	}
	return 0
}
