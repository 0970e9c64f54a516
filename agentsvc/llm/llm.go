// Package llm is the interface to language models: a [Provider] turns a [Request] into a stream of [Chunk]s. The
// folders below hold one vendor each (anthropic, gemini, ollama, openai), a model without a network (scripted), what
// the vendors share (upstream), and the test suite of all (llmtest).
//
// Package runtime builds the providers of a revision and decorates each one, from the inside out:
// [WithCircuitBreaker], [WithRetry], the meter (runtime/meteredmodel.go: it reserves the budget before the first byte is
// sent and settles it when the stream ends), tracing, and [WithFallback]. Guardrails decorate the result for each agent.
// An [AttemptLimit] bounds the requests and the time of a call that fails, in all of them together.
//
// Errors: an [*Error] means that the model's side failed or refused, an agentsvc.CodeInvalid that the request cannot
// be sent to this model (the caller must change it), anything else is local, such as the end of the context.
//
// To add a vendor: implement Provider in a new folder on top of package upstream, run llmtest.RunSuite and
// llmtest.RunHostileSuite against it, and add it to runtime.modelBuilders and to the table of files.go.
package llm

import (
	"cmp"
	"context"
	"iter"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
)

// Provider is one configured model. Implementations are safe for concurrent use.
type Provider interface {
	// Stream asks the model to continue req's conversation and yields the answer while it arrives. The last chunk has
	// Stop set; an error is the last item yielded, an [*Error] if the model's side failed. Stopping the iteration, or
	// the end of ctx, closes the upstream request.
	Stream(ctx context.Context, req Request) iter.Seq2[Chunk, error]
}

// Request is a conversation to continue. Providers must not change its slices: they are shared with the agent.
type Request struct {
	// RunScope is the run that the call is made for, and pays for it.
	agentsvc.RunScope
	// Memory reserves the memory of the answer while it is received; nil: no bound.
	Memory       *capacity.MemoryReservation
	System       string
	Conversation []agentsvc.Entry
	Tools        []agentsvc.ToolSpec
	// Output is the format of the answer, nil for any text. A provider uses the vendor's own mode for formats where the
	// model has one, and SystemText where it has none.
	Output *OutputFormat
	// Step identifies the call within its task. It is the same in each attempt of a turn, so ids derived from it are
	// too.
	Step string
	// Attempts bounds the time until the answer begins, and counts the requests of the call; nil: no bound. The
	// decorators set it.
	Attempts *AttemptLimit
	// MaxTokens bounds the answer in addition to the model's own option, e.g. by what is left of a budget; 0 = no
	// bound.
	MaxTokens int64
	// MaxBytes bounds the text of the answer, and separately the arguments of its tool calls, in bytes; 0 =
	// [DefaultMaxBytes].
	MaxBytes int
}

// DefaultMaxBytes is the bound of Request.MaxBytes where none is configured. Models answer some 100 KB at most.
const DefaultMaxBytes = 4 << 20

// ByteLimit returns the largest number of bytes of text that the answer may have.
func (r Request) ByteLimit() int { return cmp.Or(r.MaxBytes, DefaultMaxBytes) }

// TokenLimit returns the smaller of the request's bound and the model's configured option, in tokens. For both of them
// and the result, 0 means no bound.
func (r Request) TokenLimit(option int64) int64 {
	if r.MaxTokens > 0 && (option == 0 || r.MaxTokens < option) {
		return r.MaxTokens
	}
	return option
}

// Chunk is a piece of a model's answer. Several fields may be set.
//
// Text and Artifact are to be shown at once. A ToolCall is complete, never a piece. Usage counts the whole call and
// comes at most once, with or before the last chunk. Standalone comes before any text: the answer is a message by
// itself rather than the work of a task, so nothing of it is shown before it is complete.
type Chunk struct {
	Text       string
	ToolCall   *agentsvc.ToolCall
	Artifact   *agentsvc.ArtifactUpdate
	Usage      *agentsvc.Usage
	Stop       StopReason
	Standalone bool
}

// StopReason is why a model's answer ended.
type StopReason string

// The reasons to stop. Vendors' own reasons are mapped to them by the decoders.
const (
	StopEnd           StopReason = "end"        // the answer is complete
	StopTools         StopReason = "tool_calls" // the model waits for the results of its tool calls
	StopLength        StopReason = "length"     // the limit of output tokens cut the answer off
	StopRefusal       StopReason = "refusal"    // the model refuses; the text is the reason
	StopInputRequired StopReason = "ask"        // the model needs the user's answer; the text is the question
)
