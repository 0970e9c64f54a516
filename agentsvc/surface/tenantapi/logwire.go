package tenantapi

import (
	"encoding/json"

	"stoa/agentsvc/surface/encode"
)

type (
	// taskLog is a page of a task's log. NextPageToken is "" where the log has ended for now.
	taskLog struct {
		TaskID        string     `json:"task_id"`
		Entries       []logEntry `json:"entries"`
		NextPageToken string     `json:"next_page_token"`
	}
	// logEntry is a fact. Kind is the name of the member that has it. Agent is the path of the sub-agent that it comes
	// from, "" = the task's own agent.
	logEntry struct {
		Seq   int64  `json:"seq"`
		At    string `json:"at"`
		Kind  string `json:"kind"`
		Agent string `json:"agent,omitempty"`

		Status     *encode.StatusRecord   `json:"status,omitempty"`
		Message    *encode.MessageRecord  `json:"message,omitempty"`
		Artifact   *logArtifact           `json:"artifact,omitempty"`
		ModelCall  *logModelCall          `json:"model_call,omitempty"`
		ToolCall   *logToolCall           `json:"tool_call,omitempty"`
		ToolResult *logToolResult         `json:"tool_result,omitempty"`
		Approval   *encode.ApprovalRecord `json:"approval,omitempty"`
		Decision   *logDecision           `json:"decision,omitempty"`
		Finding    *logFinding            `json:"finding,omitempty"`
		Sources    *logSources            `json:"sources,omitempty"`
		Checkpoint *checkpointBody        `json:"checkpoint,omitempty"`
		Attempt    *logAttempt            `json:"attempt,omitempty"`
	}
	// logArtifact is an artifact or, with Append, further parts of one.
	logArtifact struct {
		encode.ArtifactRecord
		Append bool `json:"append"`
		Last   bool `json:"last"`
	}
	// logModelCall is a call of a model that has ended. Retries are the requests to the model that failed before its
	// answer; Fallback reports that another model failed before. The money is there for callers with usage:read, if the
	// call has a price.
	logModelCall struct {
		CallID           string   `json:"call_id,omitempty"`
		Provider         string   `json:"provider"`
		Model            string   `json:"model"`
		InputTokens      int64    `json:"input_tokens"`
		OutputTokens     int64    `json:"output_tokens"`
		CacheReadTokens  int64    `json:"cache_read_tokens"`
		CacheWriteTokens int64    `json:"cache_write_tokens"`
		ReasoningTokens  int64    `json:"reasoning_tokens"`
		Estimated        bool     `json:"estimated"`
		StartedAt        *string  `json:"started_at,omitempty"`
		Seconds          *float64 `json:"seconds,omitempty"`
		Retries          int64    `json:"retries"`
		Fallback         bool     `json:"fallback"`
		Currency         string   `json:"currency,omitempty"`
		Charge           *int64   `json:"charge,omitempty"`
		ChargeDecimal    string   `json:"charge_decimal,omitempty"`
	}
	// logToolCall is a call that starts after a decision or a supplied credential. Other calls are in their message.
	logToolCall struct {
		CallID    string          `json:"call_id"`
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
	}
	// logToolResult is the end of a tool call. Text and Failed are there for callers who may read every user's tasks.
	logToolResult struct {
		CallID  string   `json:"call_id"`
		Tool    string   `json:"tool"`
		Seconds *float64 `json:"seconds,omitempty"`
		Text    *string  `json:"text,omitempty"`
		Failed  *bool    `json:"failed,omitempty"`
	}
	// logDecision settles an approval. User, Issuer and Comment are there for callers who may read every user's tasks.
	logDecision struct {
		CallID    string          `json:"call_id"`
		Outcome   string          `json:"outcome"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
		User      string          `json:"user,omitempty"`
		Issuer    string          `json:"issuer,omitempty"`
		Comment   string          `json:"comment,omitempty"`
	}
	// logFinding has the fields of agentsvc.Finding in the same order, so that one converts to the other.
	logFinding struct {
		Guardrail string `json:"guardrail"`
		Phase     string `json:"phase"`
		Rule      string `json:"rule"`
		Action    string `json:"action"`
		Severity  string `json:"severity"`
		Shadow    bool   `json:"shadow"`
	}
	// logSources are passages of documents that a model of the turn was given.
	logSources struct {
		List     []map[string]any `json:"list"`
		InPrompt bool             `json:"in_prompt"`
	}
	// logAttempt is a further attempt of the turn, and why the one before ended.
	logAttempt struct {
		Number       int64   `json:"number"`
		Reason       string  `json:"reason"`
		Interrupted  bool    `json:"interrupted"`
		DelaySeconds float64 `json:"delay_seconds"`
	}
)
