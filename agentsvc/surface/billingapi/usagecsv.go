package billingapi

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"stoa/billing/spreadsheet"
	"stoa/billing/usage"
)

// csvMediaType is the media type of usage as CSV.
const csvMediaType = "text/csv"

// quantityNames are the members of a sum that count, in the order of their columns in CSV.
var quantityNames = []string{
	"input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "model_calls", "tool_calls", "runs", "run_seconds", "embeddings",
	"stored_bytes", "unpriced",
}

// acceptsCSV reports whether the request prefers CSV: it names it, and no JSON before it. Quality values are ignored.
func acceptsCSV(r *http.Request) bool {
	for accepted := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		accepted, _, _ = strings.Cut(accepted, ";")
		switch strings.ToLower(strings.TrimSpace(accepted)) {
		case csvMediaType:
			return true
		case "application/json":
			return false
		}
	}
	return false
}

// writeUsageCSV writes sums as CSV: the groups, the money in whole units of its currency, and the quantities. The totals are left
// out, because a spreadsheet makes its own.
func writeUsageCSV(w http.ResponseWriter, rows []usage.Sum, by []string, costs bool) error {
	var columns []string
	for _, group := range by {
		if group == "model" {
			columns = append(columns, "provider")
		}
		columns = append(columns, group)
	}
	columns = append(columns, "currency", "charge")
	if costs {
		columns = append(columns, "cost")
	}
	columns = append(columns, quantityNames...)
	var b bytes.Buffer
	out := csv.NewWriter(&b)
	err := out.Write(columns)
	for _, x := range rows {
		body := newSumBody(x, by, costs)
		record := make([]string, len(columns))
		for i, name := range columns {
			record[i] = spreadsheet.EscapeFormula(formatCell(body, name))
		}
		err = cmp.Or(err, out.Write(record))
	}
	if out.Flush(); cmp.Or(err, out.Error()) != nil {
		return cmp.Or(err, out.Error())
	}
	w.Header().Set("Content-Type", csvMediaType+"; charset=utf-8")
	_, err = w.Write(b.Bytes())
	return err
}

// formatCell returns a member of a sum's body as text, money as decimal.
func formatCell(body map[string]any, name string) string {
	value := body[name]
	if decimal, ok := body[name+decimalSuffix]; ok {
		value = decimal
	}
	if seconds, ok := value.(float64); ok {
		return strconv.FormatFloat(seconds, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}
