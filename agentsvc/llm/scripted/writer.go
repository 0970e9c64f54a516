package scripted

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

// answerWriter yields one answer. Its methods return false when the iteration is over.
type answerWriter struct {
	ctx      context.Context
	yield    func(llm.Chunk, error) bool
	req      llm.Request
	provider string
	// values are the values of the placeholders.
	values map[string]string
	usage  agentsvc.Usage
	// fixedUsage replaces the counted tokens, see Item.Usage.
	fixedUsage *Usage
	callCount  int

	// remainingBytes is what is left of the request's bound of bytes.
	remainingBytes int
	// err is the failure of fillPlaceholders. The next yieldChunk yields it.
	err error
}

// writeItems yields the items of a rule, in order, and the end of the answer. compileRule has checked them.
func (a *answerWriter) writeItems(items []Item) {
	for i, it := range items {
		ok := true
		// The last configured usage wins.
		a.fixedUsage = cmp.Or(it.Usage, a.fixedUsage)
		switch {
		case it.Text != "":
			ok = a.writeText(it.Text)
		case it.Call != nil:
			ok = a.writeCall(*it.Call)
		case it.Artifact != nil:
			// An artifact that a later item extends is not complete yet.
			extended := slices.ContainsFunc(items[i+1:], func(later Item) bool {
				return later.Artifact != nil && later.Artifact.Append && later.Artifact.Name == it.Artifact.Name
			})
			ok = a.writeArtifact(*it.Artifact, extended)
		// The answer ends here; usage of a failed call is not reported.
		case it.Failure != nil:
			a.writeFailure(*it.Failure)
			return
		case it.Question != "":
			if a.writeText(it.Question) && a.waitPause(it.Pause) {
				a.writeEnd(llm.StopInputRequired)
			}
			return
		case it.Refusal != "":
			if a.writeText(it.Refusal) && a.waitPause(it.Pause) {
				a.writeEnd(llm.StopRefusal)
			}
			return
		}
		if !ok || !a.waitPause(it.Pause) {
			return
		}
	}
	if a.callCount > 0 {
		a.writeEnd(llm.StopTools)
		return
	}
	a.writeEnd(llm.StopEnd)
}

// yieldChunk yields c, or the error if the context has ended or a.err is set.
func (a *answerWriter) yieldChunk(c llm.Chunk) bool {
	if a.err != nil {
		a.yield(llm.Chunk{}, a.err)
		return false
	}
	if err := a.ctx.Err(); err != nil {
		a.yield(llm.Chunk{}, err)
		return false
	}
	return a.yield(c, nil)
}

// waitPause waits for d, or yields the context's error.
func (a *answerWriter) waitPause(d time.Duration) bool {
	if d == 0 {
		return true
	}
	// A timer, so that the end of the context ends the pause.
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-a.ctx.Done():
		a.yield(llm.Chunk{}, a.ctx.Err())
		return false
	}
}

// countOutputTokens adds n tokens to the usage. Beyond the request's MaxTokens it ends the answer and returns false.
func (a *answerWriter) countOutputTokens(n int64) bool {
	// The bound of the request applies to scripts as to any model, so budgets can be tested with them.
	if limit := a.req.MaxTokens; limit > 0 && a.usage.OutputTokens+n > limit {
		a.writeEnd(llm.StopLength)
		return false
	}
	a.usage.OutputTokens += n
	return true
}

// writeText yields a text word by word.
func (a *answerWriter) writeText(s string) bool {
	remaining := a.fillPlaceholders(s)
	if a.err != nil {
		return a.yieldChunk(llm.Chunk{})
	}
	for remaining != "" {
		var text string
		if text, remaining = cutWord(remaining); !a.countOutputTokens(countWords(text)) {
			return false
		}
		if !a.yieldChunk(llm.Chunk{Text: text}) {
			return false
		}
	}
	return true
}

// writeCall yields a tool call.
func (a *answerWriter) writeCall(c Call) bool {
	// A call without arguments has an empty object.
	args := []byte("{}")
	if len(c.Arguments) > 0 {
		args, _ = json.Marshal(a.fillValue(c.Arguments))
	}
	tool := a.fillPlaceholders(c.Tool)
	// The name counts as one word.
	if !a.countOutputTokens(countWords(string(args)) + 1) {
		return false
	}
	// The id depends on the step and the position only, so a repeated attempt yields the same call.
	seed := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", a.req.Step, len(a.req.Conversation), a.callCount))
	a.callCount++
	id := agentsvc.CallID("call_" + hex.EncodeToString(seed[:12]))
	return a.yieldChunk(llm.Chunk{ToolCall: &agentsvc.ToolCall{ID: id, Name: tool, Arguments: args}})
}

// writeArtifact yields an artifact update. extended reports that a later item appends to the artifact.
func (a *answerWriter) writeArtifact(d Artifact, extended bool) bool {
	// The name is the id, so that items with the same name update one artifact.
	out := agentsvc.Artifact{ID: d.Name, Name: d.Name, Description: d.Description}
	switch {
	case d.Data != nil:
		out.Parts = []agentsvc.Part{{Data: &agentsvc.Data{MediaType: d.MediaType, Value: a.fillValue(d.Data)}}}
	case d.FileBase64 != "":
		// Checked by checkArtifact.
		content, _ := base64.StdEncoding.DecodeString(d.FileBase64)
		out.Parts = []agentsvc.Part{{File: &agentsvc.File{Name: d.Name, MediaType: d.MediaType, Bytes: content}}}
	case d.URL != "":
		out.Parts = []agentsvc.Part{{File: &agentsvc.File{Name: d.Name, MediaType: d.MediaType, URI: a.fillPlaceholders(d.URL)}}}
	default:
		out.Parts = []agentsvc.Part{agentsvc.TextPart(a.fillPlaceholders(d.Text))}
		// A text part has no field for its media type.
		if d.MediaType != "" && d.MediaType != "text/plain" {
			out.Metadata = map[string]any{"media_type": d.MediaType}
		}
	}
	last := d.Last || (!d.Append && !extended)
	return a.yieldChunk(llm.Chunk{Artifact: &agentsvc.ArtifactUpdate{Artifact: out, Append: d.Append, Last: last}})
}

// writeFailure yields the error that a vendor's provider would yield for the status.
func (a *answerWriter) writeFailure(f Failure) {
	// Reason and retryability follow from the status, as for a vendor's error. f.Message is not used.
	status := f.Status
	if status == 0 {
		status = http.StatusInternalServerError
	}
	a.yield(llm.Chunk{}, &llm.Error{
		Provider:  a.provider,
		Status:    status,
		Reason:    llm.StatusReason(status),
		Retryable: llm.IsRetryableStatus(status),
	})
}

// writeEnd yields the usage and the stop reason.
func (a *answerWriter) writeEnd(stop llm.StopReason) {
	// Configured counts replace the counted ones, at the end of the answer only.
	if a.fixedUsage != nil {
		a.usage.InputTokens, a.usage.OutputTokens = a.fixedUsage.InputTokens, a.fixedUsage.OutputTokens
	}
	// Usage and stop reason are one chunk, the last.
	a.yieldChunk(llm.Chunk{Usage: &a.usage, Stop: stop})
}
