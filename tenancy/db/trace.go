package db

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

// startSpan starts the span of a batch, or of a transaction if b is nil, if the span above it is recorded. It records
// the statements' verbs and tables but never arguments, which are the tenants' data.
func (h *Handle) startSpan(ctx context.Context, b *Batch) (context.Context, trace.Span) {
	above := trace.SpanFromContext(ctx)
	if !above.IsRecording() {
		return ctx, nil
	}
	name, more := "transaction", []attribute.KeyValue{systemAttributes[h.d.engineKind]}
	if b != nil {
		name = b.summarizeBatch()
		more = append(more, semconv.DBQuerySummary(name), semconv.DBOperationBatchSize(len(b.stmts)))
	}
	return above.TracerProvider().Tracer("stoa").Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(more...))
}

var systemAttributes = map[Engine]attribute.KeyValue{Postgres: semconv.DBSystemNamePostgreSQL, SQLite: semconv.DBSystemNameSQLite}

// endSpan ends a span with the SQLSTATE of err. A caller's cancellation is not an error of the database.
func endSpan(span trace.Span, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		kind := sqlState(err)
		if kind == "" {
			kind = semconv.ErrorTypeOther.Value.AsString()
		}
		span.SetStatus(codes.Error, "")
		span.SetAttributes(semconv.ErrorTypeKey.String(kind))
	}
	span.End()
}

// startCommitSpan starts the span of a group commit if a batch of the group is recorded. Its parent is the first such
// batch; it is linked with the others in both directions, since a span has only one parent.
func startCommitSpan(group []*pendingBatch) (context.Context, trace.Span) {
	ctx := context.Background()
	var links []trace.Link
	var first trace.Span
	for _, c := range group {
		switch {
		case c.span == nil:
		case first == nil:
			first = c.span
		default:
			links = append(links, trace.Link{SpanContext: c.span.SpanContext()})
		}
	}
	if first == nil {
		return ctx, nil
	}
	ctx, span := first.TracerProvider().Tracer("stoa").Start(trace.ContextWithSpan(ctx, first), "commit",
		trace.WithLinks(links...), trace.WithAttributes(attribute.Int("stoa.db.group", len(group))))
	for _, c := range group {
		if c.span != nil && c.span != first {
			c.span.AddLink(trace.Link{SpanContext: span.SpanContext()})
		}
	}
	return ctx, span
}

// maxSummaryLength bounds a summary as OpenTelemetry's conventions for database spans demand.
const maxSummaryLength = 255

// summarizeBatch names the verbs and tables of a batch, such as "INSERT task, INSERT event".
func (b *Batch) summarizeBatch() string {
	var out strings.Builder
	for _, s := range b.stmts {
		one := summarizeSQL(s.sql)
		if out.Len()+len(one)+2 > maxSummaryLength {
			break
		}
		if out.Len() > 0 {
			out.WriteString(", ")
		}
		out.WriteString(one)
	}
	return out.String()
}

// summarizeSQL names the verbs and tables of a statement's writing parts, or if it has none its verb and the first
// table it reads. It is not a parser: it relies on the keywords in capitals that the SQL of this repository uses.
func summarizeSQL(sql string) string {
	words := strings.FieldsFunc(sql, func(r rune) bool { return strings.ContainsRune(" \t\n(),;", r) })
	var parts []string
	read := ""
	for i, w := range words[:max(0, len(words)-1)] {
		next := words[i+1]
		switch w {
		case "INTO":
			parts = append(parts, "INSERT "+next)
		case "UPDATE":
			if next != "SKIP" && next != "SET" { // FOR UPDATE SKIP LOCKED, ON CONFLICT DO UPDATE SET
				parts = append(parts, "UPDATE "+next)
			}
		case "FROM":
			switch {
			case i > 0 && words[i-1] == "DELETE":
				parts = append(parts, "DELETE "+next)
			case read == "" && next != "SELECT":
				read = "SELECT " + next
			}
		}
	}
	switch {
	case len(parts) > 0:
		return strings.Join(parts, ", ")
	case read != "":
		return read
	case len(words) > 0:
		return words[0]
	}
	return ""
}
