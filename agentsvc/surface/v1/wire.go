package v1

import (
	"encoding/json"

	"stoa/agentsvc/surface"
)

// What comes in. Names are taken in camelCase and in snake_case, whichever the specification has.
type (
	sendBody struct {
		Tenant        string        `json:"tenant"`
		Message       *inMessage    `json:"message"`
		Configuration configuration `json:"configuration"`
	}
	configuration struct {
		Blocking              bool `json:"blocking"`
		HistoryLength         *int `json:"historyLength"`
		HistoryLengthSnake    *int `json:"history_length"`
		IncludeArtifacts      bool `json:"includeArtifacts"`
		IncludeArtifactsSnake bool `json:"include_artifacts"`
		surface.PushConfig
	}
	inMessage struct {
		MessageID      string          `json:"messageId"`
		MessageIDSnake string          `json:"message_id"`
		ContextID      string          `json:"contextId"`
		ContextIDSnake string          `json:"context_id"`
		TaskID         string          `json:"taskId"`
		TaskIDSnake    string          `json:"task_id"`
		Role           json.RawMessage `json:"role"`
		Parts          []inPart        `json:"parts"`
		Metadata       map[string]any  `json:"metadata"`
	}
	inPart struct {
		Text *string         `json:"text"`
		File *inFile         `json:"file"`
		Data json.RawMessage `json:"data"`
	}
	inFile struct {
		URI            string `json:"file_with_uri"`
		URICamel       string `json:"fileWithUri"`
		Bytes          string `json:"file_with_bytes"`
		BytesCamel     string `json:"fileWithBytes"`
		MediaType      string `json:"media_type"`
		MediaTypeCamel string `json:"mediaType"`
		Name           string `json:"name"`
	}
)

// What goes out.
type (
	cardList struct {
		Agents []cardEntry `json:"agents"`
	}
	cardEntry struct {
		Name string `json:"name"`
		URL  string `json:"url"`
	}
	wrappedCard struct {
		Agent agentCard `json:"agent"`
	}
	agentCard struct {
		Name         string    `json:"name"`
		Description  string    `json:"description"`
		Version      string    `json:"version"`
		Capabilities []string  `json:"capabilities"`
		ContentTypes []string  `json:"supported_content_types"`
		Security     *security `json:"security,omitempty"`
	}
	security struct {
		Schemes map[string]scheme `json:"schemes"`
	}
	scheme struct {
		Type   string `json:"type"`
		Scheme string `json:"scheme,omitempty"`
		Name   string `json:"name,omitempty"`
		In     string `json:"in,omitempty"`
	}
	taskAnswer struct {
		Task taskBody `json:"task"`
	}
	listTrailer struct { // what follows the tasks of a list
		NextPageToken string `json:"nextPageToken"`
		TotalSize     int    `json:"totalSize"`
	}
	taskBody struct {
		ID        string     `json:"id"`
		ContextID string     `json:"contextId"`
		Status    status     `json:"status"`
		History   []message  `json:"history,omitempty"`
		Artifacts []artifact `json:"artifacts,omitempty"`
	}
	status struct {
		State     string   `json:"state"`
		Update    *message `json:"update,omitempty"`
		Timestamp string   `json:"timestamp"`
	}
	message struct {
		MessageID string                   `json:"messageId,omitempty"`
		ContextID string                   `json:"contextId,omitempty"`
		TaskID    string                   `json:"taskId,omitempty"`
		Role      string                   `json:"role"`
		Parts     []part                   `json:"parts"`
		ToolCalls []surface.ToolCallRecord `json:"tool_calls,omitempty"`
		Metadata  map[string]any           `json:"metadata,omitempty"`
	}
	part struct {
		Text *string `json:"text,omitempty"`
		File *file   `json:"file,omitempty"`
		Data any     `json:"data,omitempty"`
	}
	file struct {
		URI       string `json:"file_with_uri,omitempty"`
		Bytes     []byte `json:"file_with_bytes,omitempty"`
		MediaType string `json:"media_type,omitempty"`
		Name      string `json:"name,omitempty"`
	}
	artifact struct {
		ArtifactID  string         `json:"artifactId"`
		Name        string         `json:"name,omitempty"`
		Description string         `json:"description,omitempty"`
		Parts       []part         `json:"parts"`
		Metadata    map[string]any `json:"metadata,omitempty"`
	}
)

// What the first shape of streams tells: exactly one member of an event is there.
type (
	event struct {
		Task     *taskBody            `json:"task,omitempty"`
		Msg      *message             `json:"msg,omitempty"`
		Artifact *artifactUpdate      `json:"artifactUpdate,omitempty"`
		Error    *surface.ErrorRecord `json:"error,omitempty"`
	}
	artifactUpdate struct {
		TaskID    string   `json:"taskId"`
		ContextID string   `json:"contextId"`
		Artifact  artifact `json:"artifact"`
		Append    bool     `json:"append"`
		LastChunk bool     `json:"lastChunk"`
	}
)

// frame is what the second shape of streams and the WebSocket tell: pieces of the answer, and beside them of which task
// and message, and where it stands.
type frame struct {
	Response  *response            `json:"response,omitempty"`
	MessageID string               `json:"messageId,omitempty"` // that is answered, where the client gave it an id
	Task      *taskRef             `json:"task,omitempty"`
	Artifact  *artifactUpdate      `json:"artifactUpdate,omitempty"`
	EventID   int64                `json:"eventId,omitempty"`
	Done      bool                 `json:"done,omitempty"`
	Error     *surface.ErrorRecord `json:"error,omitempty"`
}

type (
	response struct {
		Content   []part                   `json:"content"`
		ToolCalls []surface.ToolCallRecord `json:"tool_calls,omitempty"`
		Metadata  map[string]any           `json:"metadata,omitempty"`
	}
	taskRef struct {
		ID        string  `json:"id"`
		ContextID string  `json:"contextId"`
		Status    *status `json:"status,omitempty"`
	}
)
