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

// answerWriter is one answer while it is being given.
type answerWriter struct {
	ctx        context.Context
	yield      func(llm.Chunk, error) bool
	req        llm.Request
	provider   string
	values     map[string]string
	usage      agentsvc.Usage
	fixedUsage *Usage
	callCount  int

	remainingBytes int   // bytes that the answer may still have
	err            error // why nothing more is filled in
}

// writeItems gives items in order, each of which was checked by compile.
func (a *answerWriter) writeItems(items []Item) {
	for i, it := range items {
		ok := true
		a.fixedUsage = cmp.Or(it.Usage, a.fixedUsage)
		switch {
		case it.Text != "":
			ok = a.writeText(it.Text)
		case it.Call != nil:
			ok = a.writeCall(*it.Call)
		case it.Artifact != nil:
			extended := slices.ContainsFunc(items[i+1:], func(later Item) bool {
				return later.Artifact != nil && later.Artifact.Append && later.Artifact.Name == it.Artifact.Name
			})
			ok = a.writeArtifact(*it.Artifact, extended)
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

// yieldChunk yields c, unless the context has ended or the answer has an error. It reports whether to go on.
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

func (a *answerWriter) waitPause(d time.Duration) bool {
	if d == 0 {
		return true
	}
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

// countOutputTokens counts tokens of the answer. Where the request allows no more it ends the answer and reports false.
func (a *answerWriter) countOutputTokens(n int64) bool {
	if limit := a.req.MaxTokens; limit > 0 && a.usage.OutputTokens+n > limit {
		a.writeEnd(llm.StopLength)
		return false
	}
	a.usage.OutputTokens += n
	return true
}

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

func (a *answerWriter) writeCall(c Call) bool {
	args := []byte("{}")
	if len(c.Arguments) > 0 {
		args, _ = json.Marshal(a.fillValue(c.Arguments))
	}
	if !a.countOutputTokens(countWords(string(args)) + 1) {
		return false
	}
	// The id depends on the step and the turn alone, so that a repeated step asks for the same call.
	seed := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", a.req.Step, len(a.req.Conversation), a.callCount))
	a.callCount++
	id := agentsvc.CallID("call_" + hex.EncodeToString(seed[:12]))
	return a.yieldChunk(llm.Chunk{ToolCall: &agentsvc.ToolCall{ID: id, Name: c.Tool, Arguments: args}})
}

func (a *answerWriter) writeArtifact(d Artifact, extended bool) bool {
	out := agentsvc.Artifact{ID: d.Name, Name: d.Name, Description: d.Description}
	switch {
	case d.Data != nil:
		out.Parts = []agentsvc.Part{{Data: &agentsvc.Data{MediaType: d.MediaType, Value: a.fillValue(d.Data)}}}
	case d.FileBase64 != "":
		content, _ := base64.StdEncoding.DecodeString(d.FileBase64)
		out.Parts = []agentsvc.Part{{File: &agentsvc.File{Name: d.Name, MediaType: d.MediaType, Bytes: content}}}
	case d.URL != "":
		out.Parts = []agentsvc.Part{{File: &agentsvc.File{Name: d.Name, MediaType: d.MediaType, URI: a.fillPlaceholders(d.URL)}}}
	default:
		out.Parts = []agentsvc.Part{agentsvc.TextPart(a.fillPlaceholders(d.Text))}
		if d.MediaType != "" && d.MediaType != "text/plain" {
			out.Metadata = map[string]any{"media_type": d.MediaType}
		}
	}
	last := d.Last || (!d.Append && !extended)
	return a.yieldChunk(llm.Chunk{Artifact: &agentsvc.ArtifactUpdate{Artifact: out, Append: d.Append, Last: last}})
}

func (a *answerWriter) writeFailure(f Failure) {
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

func (a *answerWriter) writeEnd(stop llm.StopReason) {
	if a.fixedUsage != nil {
		a.usage.InputTokens, a.usage.OutputTokens = a.fixedUsage.InputTokens, a.fixedUsage.OutputTokens
	}
	a.yieldChunk(llm.Chunk{Usage: &a.usage, Stop: stop})
}
