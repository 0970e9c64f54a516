package agentsvc

import (
	"slices"
	"time"
)

// Event is one fact on a task's log, or a live chunk of text that no log keeps. A fact has a Seq, 1 for the first
// of its task and without gaps; a chunk has Seq 0. Frame is the path of the sub-agent that the
// event comes from, "" for the task's own agent. Exactly one of the pointers is set.
type Event struct {
	Task     TaskID
	Seq      int64
	At       time.Time
	Frame    string
	Status   *Status
	Message  *Message
	Artifact *ArtifactUpdate
	Call     *ToolCall // is about to be made, where no message has announced it as it is
	Result   *ToolResult
	Approval *Approval
	Decision *Decision
	Usage    *Usage
	Finding  *Finding
	// Checkpoint says how far the agent is. On the log it is a point that the task can be restored to.
	Checkpoint *Checkpoint
	Chunk      *Chunk
}

// Checkpoint is a place between the steps of a turn. Step counts the model calls of its agent before it.
type Checkpoint struct {
	Reason CheckpointReason
	Step   int
}

// CheckpointReason says what makes a place a checkpoint.
type CheckpointReason string

// The reasons.
const (
	AtStart    CheckpointReason = "start"       // a run begins
	BeforeLLM  CheckpointReason = "before_llm"  // the model is about to be called
	AfterTools CheckpointReason = "after_tools" // all tools that the model called have answered
	AtInterval CheckpointReason = "interval"    // so many iterations have passed
)

// Chunk is a piece of an agent's message while it is being written: the text that stands at byte Offset of it.
// Chunks may be late, lost or repeated; the fact that follows them holds the whole text. After is the sequence of the
// last fact before the chunk.
type Chunk struct {
	Message MessageID
	Offset  int
	Text    string
	After   int64
}

// ArtifactUpdate is a new artifact, or with Append further parts of one that is already there. Last marks the
// artifact's end.
type ArtifactUpdate struct {
	Artifact Artifact
	Append   bool
	Last     bool
}

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

// Usage is what one model call, or a sum of them, consumed. InputTokens includes those read from and written to the
// cache, OutputTokens those spent on reasoning.
type Usage struct {
	// Call names the model call: who tells of it again tells of the same. Began is when it was made, zero where nobody
	// knows. Estimated says that the vendor did not report how much it was.
	Call             string
	StartedAt        time.Time
	Estimated        bool
	Provider         string
	Model            string
	InputTokens      int64
	OutputTokens     int64
	CacheReadTokens  int64
	CacheWriteTokens int64
	ReasoningTokens  int64
}

// Add returns the sum of u and v, under v's model.
func (u Usage) Add(v Usage) Usage {
	v.InputTokens += u.InputTokens
	v.OutputTokens += u.OutputTokens
	v.CacheReadTokens += u.CacheReadTokens
	v.CacheWriteTokens += u.CacheWriteTokens
	v.ReasoningTokens += u.ReasoningTokens
	return v
}
