// Package llm is the seam to language models: a [Provider] turns a [Request] into a stream of [Chunk]. The folders
// below hold one vendor each and llmtest the suite that every one of them passes.
package llm

import (
	"cmp"
	"context"
	"iter"

	"stoa/agentsvc"
)

// Provider is one configured model. It is safe for concurrent use.
type Provider interface {
	// Stream asks the model to continue req's conversation and yields its answer as it comes. The last chunk has
	// Stop set; an error, a [*Error] where the model's side is to blame, is the last thing yielded. Breaking off
	// the loop, or the end of ctx, closes the upstream request.
	Stream(ctx context.Context, req Request) iter.Seq2[Chunk, error]
}

// Request is a conversation to continue.
type Request struct {
	System       string
	Conversation []agentsvc.Entry
	Tools        []agentsvc.ToolSpec
	// Step identifies the call across retries and restarts of its run.
	Step string
	// MaxTokens bounds the answer beyond what the model's options do; 0 = no further.
	MaxTokens int64
	// MaxBytes bounds the text of the answer, and apart from it the arguments of its tool calls; 0 = [DefaultMaxBytes].
	MaxBytes int
}

// DefaultMaxBytes bounds an answer where nothing else is said. Models answer some 100 KB at most.
const DefaultMaxBytes = 4 << 20

// ByteLimit returns how many bytes of text the answer may have.
func (r Request) ByteLimit() int { return cmp.Or(r.MaxBytes, DefaultMaxBytes) }

// TokenLimit returns how many tokens the answer may have where a model's options say so many (0 = any number), 0 for any number.
func (r Request) TokenLimit(option int64) int64 {
	if r.MaxTokens > 0 && (option == 0 || r.MaxTokens < option) {
		return r.MaxTokens
	}
	return option
}

// Chunk is a piece of a model's answer. Text and Artifact are to be shown, ToolCall is to be run; a tool call comes
// whole, never in pieces. Usage, where the model reports it, counts the whole call and comes once. Alone comes before all
// text of an answer that is a message by itself rather than the work of a task; nothing of it is shown before it is whole.
type Chunk struct {
	Text       string
	ToolCall   *agentsvc.ToolCall
	Artifact   *agentsvc.ArtifactUpdate
	Usage      *agentsvc.Usage
	Stop       StopReason
	Standalone bool
}

// StopReason says why a model's answer ended.
type StopReason string

// The reasons to stop.
const (
	StopEnd           StopReason = "end"        // the answer is whole
	StopTools         StopReason = "tool_calls" // the model waits for its tools' results
	StopLength        StopReason = "length"     // the limit on output tokens cut it
	StopRefusal       StopReason = "refusal"    // the model declines; Text says why
	StopInputRequired StopReason = "ask"        // the model needs the user's answer; Text is the question
)
