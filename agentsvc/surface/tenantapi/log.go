package tenantapi

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/response"
	"stoa/authz"
	"stoa/billing/usage"
)

// Page sizes of a log, in facts.
const (
	defaultLogPageSize = 200
	maxLogPageSize     = 1000
)

// logHandler serves the log of a task.
type logHandler struct{ charged *usage.Service }

// handleReadLog answers with a page of a task's log: its facts after a sequence, in order. The caller sees the same
// tasks as in the list. What tools and sub-agents answered, the passages of documents and who decided are shown to
// callers that may read every user's tasks, as in streams; charges to callers that may read the usage.
func (h logHandler) handleReadLog(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	visibility, err := v.ResolveVisibility(r.Context(), authz.TasksRead, "")
	if err != nil {
		return err
	}
	size, err := decode.ParsePageSize(r, defaultLogPageSize, maxLogPageSize)
	if err != nil {
		return err
	}
	after, err := parseLogPosition(r.URL.Query())
	if err != nil {
		return err
	}
	id := agentsvc.TaskID(surface.PathParam(r, "task"))
	evs, more, err := v.Tasks.Reader.ReadLog(r.Context(), visibility, id, after, size)
	if err != nil {
		return err
	}
	reader := logReader{readsAll: visibility.Owner == nil}
	if v.HasScope(authz.UsageRead) {
		if reader.charges, err = h.charged.LoadCharges(r.Context(), v.App.ID, id, modelCallIDs(evs)); err != nil {
			return err
		}
	}
	out := taskLog{TaskID: string(id), Entries: []logEntry{}}
	if more && len(evs) > 0 {
		out.NextPageToken = strconv.FormatInt(evs[len(evs)-1].Seq, 10)
	}
	for _, ev := range evs {
		if e, ok := reader.newLogEntry(ev); ok {
			out.Entries = append(out.Entries, e)
		}
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// parseLogPosition returns the sequence after which a page of a log begins: that of page_token, else of after, else 0.
func parseLogPosition(q url.Values) (int64, error) {
	for _, name := range []string{"page_token", "after"} {
		if text := q.Get(name); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < 0 {
				return 0, agentsvc.NewInvalidError(name, "must be the seq of an entry")
			}
			return n, nil
		}
	}
	return 0, nil
}

// modelCallIDs returns the ids of the model calls among evs.
func modelCallIDs(evs []agentsvc.Event) (ids []string) {
	for _, ev := range evs {
		if ev.Usage != nil && ev.Usage.Call != "" {
			ids = append(ids, ev.Usage.Call)
		}
	}
	return ids
}

// logReader is what a caller may see of a log.
type logReader struct {
	// readsAll is set for callers who may read every user's tasks.
	readsAll bool
	// charges has the charges of model calls, nil for callers who may not read the usage.
	charges map[string]usage.Charge
}

// newLogEntry returns the entry of a fact, and false for one that the caller may not see or that this version does not
// know.
func (l logReader) newLogEntry(ev agentsvc.Event) (e logEntry, ok bool) {
	e = logEntry{Seq: ev.Seq, At: encode.FormatTime(ev.At), Agent: ev.Frame}
	switch {
	case ev.Status != nil:
		e.Kind, e.Status = "status", newLogStatus(*ev.Status)
	case ev.Message != nil:
		e.Kind, e.Message = "message", l.newLogMessage(ev)
	case ev.Artifact != nil:
		e.Kind, e.Artifact = "artifact", &logArtifact{encode.NewArtifactRecord(ev.Artifact.Artifact), ev.Artifact.Append, ev.Artifact.Last}
	case ev.Usage != nil:
		e.Kind, e.ModelCall = "model_call", l.newLogModelCall(*ev.Usage)
	case ev.Call != nil:
		e.Kind, e.ToolCall = "tool_call", &logToolCall{string(ev.Call.ID), ev.Call.Name, completeArguments(ev.Call.Arguments)}
	case ev.Result != nil:
		e.Kind, e.ToolResult = "tool_result", l.newLogToolResult(*ev.Result)
	case ev.Approval != nil:
		a := encode.NewApprovalRecord(*ev.Approval)
		e.Kind, e.Approval = "approval", &a
	case ev.Decision != nil:
		e.Kind, e.Decision = "decision", l.newLogDecision(*ev.Decision)
	case ev.Finding != nil:
		f := logFinding(*ev.Finding)
		e.Kind, e.Finding = "finding", &f
	case ev.Sources != nil && l.readsAll:
		e.Kind, e.Sources = "sources", newLogSources(*ev.Sources)
	case ev.Checkpoint != nil:
		e.Kind, e.Checkpoint = "checkpoint", &checkpointBody{ev.Seq, string(ev.Checkpoint.Reason), ev.Checkpoint.Step, ev.Frame, e.At}
	case ev.Attempt != nil:
		a := ev.Attempt
		e.Kind, e.Attempt = "attempt", &logAttempt{a.Number, a.Reason, a.CutOff, a.Delay.Seconds()}
	}
	return e, e.Kind != ""
}

// newLogStatus returns a state with its message, also a user's. The tool calls that the last message of a turn repeats
// are left out: the log has each of them.
func newLogStatus(s agentsvc.Status) *encode.StatusRecord {
	record := encode.StatusRecord{State: string(s.State), Timestamp: encode.FormatTime(s.At)}
	if s.Message != nil {
		record.Message = encode.NewMessageRecord(s.Message)
		record.Message.ToolCalls = nil
	}
	return &record
}

// newLogMessage returns a message. Of a sub-agent's it has the tool calls, and the rest for callers who may read the
// results of tools: it is the answer to another agent.
func (l logReader) newLogMessage(ev agentsvc.Event) *encode.MessageRecord {
	m := *ev.Message
	if ev.Frame != "" {
		if m.Metadata = nil; !l.readsAll {
			m.Parts = nil
		}
	}
	return encode.NewMessageRecord(&m)
}

func (l logReader) newLogModelCall(u agentsvc.Usage) *logModelCall {
	c := &logModelCall{
		CallID: u.Call, Provider: u.Provider, Model: u.Model, InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CacheReadTokens: u.CacheReadTokens,
		CacheWriteTokens: u.CacheWriteTokens, ReasoningTokens: u.ReasoningTokens, Estimated: u.Estimated, StartedAt: encode.FormatOptionalTime(u.StartedAt),
		Seconds: knownSeconds(u.Took), Retries: u.Retries, Fallback: u.Fallback,
	}
	if charge, ok := l.charges[u.Call]; ok {
		amount := int64(charge.Amount)
		c.Currency, c.Charge, c.ChargeDecimal = charge.Currency, &amount, charge.Amount.Decimal(charge.Currency)
	}
	return c
}

func (l logReader) newLogToolResult(res agentsvc.ToolResult) *logToolResult {
	r := &logToolResult{CallID: string(res.Call), Tool: res.Name, Seconds: knownSeconds(res.Took)}
	if l.readsAll {
		r.Text, r.Failed = &res.Text, &res.Failed
	}
	return r
}

func (l logReader) newLogDecision(d agentsvc.Decision) *logDecision {
	decision := &logDecision{CallID: string(d.Call), Outcome: string(d.Outcome), Arguments: d.Arguments}
	if l.readsAll {
		decision.User, decision.Issuer, decision.Comment = d.By.Subject, d.By.Issuer, d.Comment
	}
	return decision
}

func newLogSources(s agentsvc.Sources) *logSources {
	list := make([]map[string]any, len(s.List))
	for i, source := range s.List {
		list[i] = source.ToMetadata()
	}
	return &logSources{list, s.InPrompt}
}

// knownSeconds returns d in seconds, nil for 0, which means unknown.
func knownSeconds(d time.Duration) *float64 {
	if d <= 0 {
		return nil
	}
	seconds := d.Seconds()
	return &seconds
}

// completeArguments returns the arguments of a call, {} if there are none.
func completeArguments(arguments json.RawMessage) json.RawMessage {
	if len(arguments) == 0 {
		return json.RawMessage("{}")
	}
	return arguments
}
