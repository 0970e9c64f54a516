package agentsvc

import (
	"slices"
	"time"
)

// Event is one fact on a task's log, or a chunk of live text that no log keeps. Exactly one of the pointers is set.
type Event struct {
	// Seq is 1 for the first fact of a task and grows without gaps; 0 for a chunk.
	Task TaskID
	Seq  int64
	At   time.Time
	// Frame is the path of the sub-agent that the event comes from; "" = the task's own agent.
	Frame    string
	Status   *Status
	Message  *Message
	Artifact *ArtifactUpdate
	// Call is a tool call that starts after a decision or a supplied credential, with the arguments it runs with. It
	// consumes the decision: after a crash the next attempt knows that the call's effect is unknown. Other calls are
	// announced by their message.
	Call     *ToolCall
	Result   *ToolResult
	Approval *Approval
	Decision *Decision
	Usage    *Usage
	Finding  *Finding
	// Sources are passages of documents that got their numbers, for a model of the turn.
	Sources *Sources
	// Checkpoint is a place that the agent has reached. On the log it is a point from which the task can be restored.
	Checkpoint *Checkpoint
	// Attempt is a further attempt of the turn's run.
	Attempt *Attempt
	Chunk   *Chunk
}

// Attempt is a further attempt of a run: the one before ended without an end of the turn. Callers may read its text.
type Attempt struct {
	// Number is that of the attempt that continues the turn. It grows, except after a planned stop of a process, which
	// does not count as an attempt.
	Number int64
	// Reason is why the attempt before ended.
	Reason string
	// CutOff reports that its process stopped in the middle of it; else it failed.
	CutOff bool
	// Delay is how long the run waits until the attempt begins.
	Delay time.Duration
}

// Checkpoint is a place between the steps of a turn. Step is the number of model calls of its agent before it.
type Checkpoint struct {
	Reason CheckpointReason
	Step   int
}

// CheckpointReason is why a place became a checkpoint (docs/checkpoints.md).
type CheckpointReason string

// The reasons.
const (
	AtStart    CheckpointReason = "start"       // a run begins
	BeforeLLM  CheckpointReason = "before_llm"  // the model is about to be called
	AfterTools CheckpointReason = "after_tools" // all tools that the model called have answered
	AtInterval CheckpointReason = "interval"    // the configured number of model calls has passed
)

// Chunk is a piece of an unfinished message: Text begins at byte Offset of it. Chunks may be late, lost or repeated;
// the fact that follows them contains the whole text. After is the sequence of the last fact before the chunk.
type Chunk struct {
	Message MessageID
	Offset  int
	Text    string
	After   int64
}

// ArtifactUpdate is a new artifact, a replacement of the one with its id, or, with Append, further parts of that one.
// Last marks the end of the artifact.
type ArtifactUpdate struct {
	Artifact Artifact
	Append   bool
	Last     bool
}

// applyTo returns the artifacts after u. It copies what it changes: earlier snapshots share the slices.
func (u ArtifactUpdate) applyTo(to []Artifact) []Artifact {
	i := slices.IndexFunc(to, func(a Artifact) bool { return a.ID == u.Artifact.ID })
	if i < 0 {
		return append(to, u.Artifact)
	}
	to = slices.Clone(to)
	if u.Append {
		to[i].Parts = append(slices.Clip(to[i].Parts), u.Artifact.Parts...)
		return to
	}
	to[i] = u.Artifact
	return to
}

// Usage is what one model call, or a sum of calls, consumed. All counts are tokens. InputTokens include those read
// from and written to the provider's cache, OutputTokens those spent on reasoning.
type Usage struct {
	// Call identifies the model call, so that a repeated report is recognised. StartedAt is its time, zero if
	// unknown. Estimated reports that the provider did not report the counts.
	Call      string
	StartedAt time.Time
	Estimated bool
	// Took is the time from the start of the call until the provider reported the counts, which is the end of its answer;
	// 0 = unknown. Retries is how many requests to the model failed before, Fallback reports that another model failed
	// before. They are those of one call: sums have none.
	Took             time.Duration
	Retries          int64
	Fallback         bool
	Provider         string
	Model            string
	InputTokens      int64
	OutputTokens     int64
	CacheReadTokens  int64
	CacheWriteTokens int64
	ReasoningTokens  int64
}

// Add returns the sum of u and v. Provider, model, call and time are those of v.
func (u Usage) Add(v Usage) Usage {
	v.InputTokens += u.InputTokens
	v.OutputTokens += u.OutputTokens
	v.CacheReadTokens += u.CacheReadTokens
	v.CacheWriteTokens += u.CacheWriteTokens
	v.ReasoningTokens += u.ReasoningTokens
	v.Took, v.Retries, v.Fallback = 0, 0, false
	return v
}
