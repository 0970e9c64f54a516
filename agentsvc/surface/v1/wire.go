package v1

import (
	"encoding/json"

	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
)

// Request types. Names are accepted in camelCase and in snake_case, whichever the specification has; the field with
// the plain name wins if both are present.
type (
	// sendBody is the body of message:send and message:stream, and a text frame from the client on the WebSocket.
	sendBody struct {
		Tenant        string        `json:"tenant"`
		Message       *inMessage    `json:"message"`
		Configuration configuration `json:"configuration"`
	}
	// configuration holds the options of one message. The push notification config is only decoded to be refused.
	configuration struct {
		Blocking              bool `json:"blocking"`
		HistoryLength         *int `json:"historyLength"`
		HistoryLengthSnake    *int `json:"history_length"`
		IncludeArtifacts      bool `json:"includeArtifacts"`
		IncludeArtifactsSnake bool `json:"include_artifacts"`
		decode.PushConfig
	}
	// inMessage is a message as clients send it. Role is raw because it may be a text or a number.
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
	// inPart is a part; the pointers distinguish an empty value from a missing one.
	inPart struct {
		Text *string         `json:"text"`
		File *inFile         `json:"file"`
		Data json.RawMessage `json:"data"`
	}
	// inFile is a file by its address or its bytes in base64 (decode.FileFields checks that exactly one is
	// present).
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

// Response types.
type (
	cardEntry struct {
		Name string `json:"name"`
		URL  string `json:"url"`
	}
	// wrappedCard is the answer of the card endpoint; its clients expect the member agent around the card.
	wrappedCard struct {
		Agent agentCard `json:"agent"`
	}
	// agentCard is the card of this surface; the official A2A card is served by package a2a.
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
	// scheme is a Security Scheme Object of OpenAPI 3: type http with Scheme, or apiKey with Name and In.
	scheme struct {
		Type   string `json:"type"`
		Scheme string `json:"scheme,omitempty"`
		Name   string `json:"name,omitempty"`
		In     string `json:"in,omitempty"`
	}
	// taskAnswer is the answer of message:send; the other task endpoints answer with the task itself.
	taskAnswer struct {
		Task taskBody `json:"task"`
	}
	// listTrailer holds the members after the list of tasks; encode.List joins them.
	listTrailer struct {
		NextPageToken string `json:"nextPageToken"`
		TotalSize     int    `json:"totalSize"`
	}
	// taskBody is a task; in a stream it carries only the status.
	taskBody struct {
		ID        string     `json:"id"`
		ContextID string     `json:"contextId"`
		Status    status     `json:"status"`
		History   []message  `json:"history,omitempty"`
		Artifacts []artifact `json:"artifacts,omitempty"`
	}
	// status is a task's state; Update is the agent's message that came with it.
	status struct {
		State     string   `json:"state"`
		Update    *message `json:"update,omitempty"`
		Timestamp string   `json:"timestamp"`
	}
	// message is a message of a history, a status or a stream. ContextID and TaskID are only set where the message
	// stands alone.
	message struct {
		MessageID string                  `json:"messageId,omitempty"`
		ContextID string                  `json:"contextId,omitempty"`
		TaskID    string                  `json:"taskId,omitempty"`
		Role      string                  `json:"role"`
		Parts     []part                  `json:"parts"`
		ToolCalls []encode.ToolCallRecord `json:"tool_calls,omitempty"`
		Metadata  map[string]any          `json:"metadata,omitempty"`
	}
	part struct {
		Text *string `json:"text,omitempty"`
		File *file   `json:"file,omitempty"`
		Data any     `json:"data,omitempty"`
	}
	// file has either URI or Bytes; encoding/json encodes Bytes in base64.
	file struct {
		URI       string `json:"file_with_uri,omitempty"`
		Bytes     []byte `json:"file_with_bytes,omitempty"`
		MediaType string `json:"media_type,omitempty"`
		Name      string `json:"name,omitempty"`
	}
	// artifact is a result of the task; its parts are complete in a task and may be partial in an artifactUpdate.
	artifact struct {
		ArtifactID  string         `json:"artifactId"`
		Name        string         `json:"name,omitempty"`
		Description string         `json:"description,omitempty"`
		Parts       []part         `json:"parts"`
		Metadata    map[string]any `json:"metadata,omitempty"`
	}
)

// The format message of streams: exactly one member of an event is present.
type (
	// event is the data of one server-sent event. A blocking message:send also answers with one, if the agent sent
	// a message instead of a task.
	event struct {
		Task     *taskBody        `json:"task,omitempty"`
		Msg      *message         `json:"msg,omitempty"`
		Artifact *artifactUpdate  `json:"artifactUpdate,omitempty"`
		Error    *apierror.Record `json:"error,omitempty"`
	}
	// artifactUpdate is an artifact or, with Append, more parts of one that was sent before; LastChunk marks its
	// end.
	artifactUpdate struct {
		TaskID    string   `json:"taskId"`
		ContextID string   `json:"contextId"`
		Artifact  artifact `json:"artifact"`
		Append    bool     `json:"append"`
		LastChunk bool     `json:"lastChunk"`
	}
)

// frame is one event of the format response and one frame of the WebSocket: a piece of the answer, the task and
// client message that it belongs to, and the task's status if it has changed.
type frame struct {
	Response *responseContent `json:"response,omitempty"` // new content; empty in a frame with a status only
	// MessageID is the client's ID of the message that is answered, "" if it has none. Frames of several messages
	// are interleaved on a WebSocket.
	MessageID string          `json:"messageId,omitempty"` // that is answered, where the client gave it an id
	Task      *taskRef        `json:"task,omitempty"`
	Artifact  *artifactUpdate `json:"artifactUpdate,omitempty"`
	// EventID is the sequence number to resume after; 0 = a delta, which cannot be resumed from.
	EventID int64            `json:"eventId,omitempty"`
	Done    bool             `json:"done,omitempty"`  // the last frame for this message
	Error   *apierror.Record `json:"error,omitempty"` // ends the answer to the message; the connection stays open
}

// Parts of a frame.
type (
	// responseContent is the piece of the answer in a frame. Content is never null, so that clients can concatenate it.
	responseContent struct {
		Content   []part                  `json:"content"`
		ToolCalls []encode.ToolCallRecord `json:"tool_calls,omitempty"`
		Metadata  map[string]any          `json:"metadata,omitempty"`
	}
	// taskRef names the task of a frame. Status is only present in the frame of a status event.
	taskRef struct {
		ID        string  `json:"id"`
		ContextID string  `json:"contextId"`
		Status    *status `json:"status,omitempty"`
	}
)
