package export

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"stoa/billing/spreadsheet"
)

// ID returns an id of the row that is unique among all apps and the same at each delivery. A receiver that stores it
// counts nothing twice. It is the first half of a SHA-256, in hex.
func (r Row) ID() string {
	h := sha256.Sum256([]byte(string(r.AppID) + "\x00" + string(r.Task) + "\x00" + r.Key))
	return hex.EncodeToString(h[:16])
}

// rowFields are the fields of an exported row, in the order of the CSV columns. Names and order are part of the
// interface: append only.
var rowFields = []struct {
	name string
	// of returns a string, an int64 or a bool.
	of func(Row) any
}{
	{"id", func(r Row) any { return r.ID() }},
	{"app", func(r Row) any { return r.App }},
	{"app_id", func(r Row) any { return string(r.AppID) }},
	{"task_id", func(r Row) any { return string(r.Task) }},
	{"kind", func(r Row) any { return string(r.Kind) }},
	{"at", func(r Row) any { return r.At.UTC().Format(time.RFC3339Nano) }},
	{"recorded_at", func(r Row) any { return r.Recorded.UTC().Format(time.RFC3339Nano) }},
	{"agent", func(r Row) any { return r.Agent }},
	{"issuer", func(r Row) any { return r.Owner.Issuer }},
	{"user", func(r Row) any { return r.Owner.Subject }},
	{"key", func(r Row) any { return r.KeyID() }},
	{"provider", func(r Row) any { return r.Provider }},
	{"model", func(r Row) any { return r.Model }},
	{"input_tokens", func(r Row) any { return r.InputTokens }},
	{"output_tokens", func(r Row) any { return r.OutputTokens }},
	{"cache_read_tokens", func(r Row) any { return r.CacheReadTokens }},
	{"cache_write_tokens", func(r Row) any { return r.CacheWriteTokens }},
	{"reasoning_tokens", func(r Row) any { return r.ReasoningTokens }},
	{"model_calls", func(r Row) any { return r.ModelCalls }},
	{"tool_calls", func(r Row) any { return r.ToolCalls }},
	{"runs", func(r Row) any { return r.Runs }},
	{"run_micros", func(r Row) any { return r.RunTime.Microseconds() }},
	{"embeddings", func(r Row) any { return r.Embeddings }},
	{"stored_bytes", func(r Row) any { return r.StoredBytes }},
	{"cost", func(r Row) any { return int64(r.Cost) }},
	{"charge", func(r Row) any { return int64(r.Charge) }},
	{"currency", func(r Row) any { return r.Currency }},
	{"price_version", func(r Row) any { return r.Version }},
	{"unpriced", func(r Row) any { return r.Unpriced }},
	{"estimated", func(r Row) any { return r.Estimated }},
	{"cost_decimal", func(r Row) any { return r.Cost.Decimal(r.Currency) }},
	{"charge_decimal", func(r Row) any { return r.Charge.Decimal(r.Currency) }},
}

// FieldNames returns the names of the fields of a row, in the order of [Row.EncodeCells].
func FieldNames() []string {
	names := make([]string, len(rowFields))
	for i, f := range rowFields {
		names[i] = f.name
	}
	return names
}

// EncodeFields returns the fields by name, for JSON.
func (r Row) EncodeFields() map[string]any {
	o := make(map[string]any, len(rowFields))
	for _, f := range rowFields {
		o[f.name] = f.of(r)
	}
	return o
}

// EncodeCells returns the fields as a CSV record.
func (r Row) EncodeCells() []string {
	cells := make([]string, len(rowFields))
	for i, f := range rowFields {
		switch v := f.of(r).(type) {
		case string:
			cells[i] = spreadsheet.EscapeFormula(v)
		case int64:
			cells[i] = strconv.FormatInt(v, 10)
		case bool:
			cells[i] = strconv.FormatBool(v)
		}
	}
	return cells
}
