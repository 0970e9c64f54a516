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

// answer is one answer while it is being given.
type answer struct {
	ctx    context.Context
	yield  func(llm.Chunk, error) bool
	req    llm.Request
	name   string
	values map[string]string
	usage  agentsvc.Usage
	fixed  *Usage
	calls  int

	room int   // bytes that the answer may still have
	err  error // why nothing more is filled in
}

// play gives items in order, each of which was checked by compile.
func (a *answer) play(items []Item) {
	for i, it := range items {
		ok := true
		a.fixed = cmp.Or(it.Usage, a.fixed)
		switch {
		case it.Say != "":
			ok = a.say(it.Say)
		case it.Call != nil:
			ok = a.call(*it.Call)
		case it.Artifact != nil:
			extended := slices.ContainsFunc(items[i+1:], func(later Item) bool {
				return later.Artifact != nil && later.Artifact.Append && later.Artifact.Name == it.Artifact.Name
			})
			ok = a.artifact(*it.Artifact, extended)
		case it.Fail != nil:
			a.fail(*it.Fail)
			return
		case it.Ask != "":
			if a.say(it.Ask) && a.pause(it.Pause) {
				a.end(llm.StopAsk)
			}
			return
		case it.Refuse != "":
			if a.say(it.Refuse) && a.pause(it.Pause) {
				a.end(llm.StopRefusal)
			}
			return
		}
		if !ok || !a.pause(it.Pause) {
			return
		}
	}
	if a.calls > 0 {
		a.end(llm.StopTools)
		return
	}
	a.end(llm.StopEnd)
}

// give yields c, unless the context has ended or the answer has an error. It reports whether to go on.
func (a *answer) give(c llm.Chunk) bool {
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

func (a *answer) pause(d time.Duration) bool {
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

// spend counts tokens of the answer. Where the request allows no more it ends the answer and reports false.
func (a *answer) spend(n int64) bool {
	if most := a.req.MaxTokens; most > 0 && a.usage.OutputTokens+n > most {
		a.end(llm.StopLength)
		return false
	}
	a.usage.OutputTokens += n
	return true
}

func (a *answer) say(s string) bool {
	rest := a.fill(s)
	if a.err != nil {
		return a.give(llm.Chunk{})
	}
	for rest != "" {
		var text string
		if text, rest = word(rest); !a.spend(words(text)) {
			return false
		}
		if !a.give(llm.Chunk{Text: text}) {
			return false
		}
	}
	return true
}

func (a *answer) call(c Call) bool {
	args := []byte("{}")
	if len(c.Arguments) > 0 {
		args, _ = json.Marshal(a.fillAll(c.Arguments))
	}
	if !a.spend(words(string(args)) + 1) {
		return false
	}
	// The id depends on the step and the turn alone, so that a repeated step asks for the same call.
	seed := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", a.req.Step, len(a.req.Conversation), a.calls))
	a.calls++
	id := agentsvc.CallID("call_" + hex.EncodeToString(seed[:12]))
	return a.give(llm.Chunk{ToolCall: &agentsvc.ToolCall{ID: id, Name: c.Tool, Arguments: args}})
}

func (a *answer) artifact(d Artifact, extended bool) bool {
	out := agentsvc.Artifact{ID: d.Name, Name: d.Name, Description: d.Description}
	switch {
	case d.Data != nil:
		out.Parts = []agentsvc.Part{{Data: &agentsvc.Data{MediaType: d.MediaType, Value: a.fillAll(d.Data)}}}
	case d.FileBase64 != "":
		content, _ := base64.StdEncoding.DecodeString(d.FileBase64)
		out.Parts = []agentsvc.Part{{File: &agentsvc.File{Name: d.Name, MediaType: d.MediaType, Bytes: content}}}
	case d.URL != "":
		out.Parts = []agentsvc.Part{{File: &agentsvc.File{Name: d.Name, MediaType: d.MediaType, URI: a.fill(d.URL)}}}
	default:
		out.Parts = []agentsvc.Part{agentsvc.TextPart(a.fill(d.Text))}
		if d.MediaType != "" && d.MediaType != "text/plain" {
			out.Metadata = map[string]any{"media_type": d.MediaType}
		}
	}
	last := d.Last || (!d.Append && !extended)
	return a.give(llm.Chunk{Artifact: &agentsvc.ArtifactUpdate{Artifact: out, Append: d.Append, Last: last}})
}

func (a *answer) fail(f Fail) {
	status := f.Status
	if status == 0 {
		status = http.StatusInternalServerError
	}
	a.yield(llm.Chunk{}, &llm.Error{
		Provider:  a.name,
		Status:    status,
		Reason:    llm.StatusReason(status),
		Retryable: llm.RetryableStatus(status),
	})
}

func (a *answer) end(stop llm.Stop) {
	if a.fixed != nil {
		a.usage.InputTokens, a.usage.OutputTokens = a.fixed.InputTokens, a.fixed.OutputTokens
	}
	a.give(llm.Chunk{Usage: &a.usage, Stop: stop})
}
