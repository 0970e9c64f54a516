package a2a

import (
	"encoding/json"

	a2alegacy "github.com/a2aproject/a2a-go/a2a"
	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
)

// Request types. One set of structs decodes every version and binding: names are accepted in camelCase and in
// snake_case (the fields that end in Snake), and a part in the shape of any version. Where both spellings are
// present, camelCase wins. Responses have the types of the protocol's library, except for those below.
type (
	params struct {
		Tenant        string          `json:"tenant"`
		Message       *message        `json:"message"`
		Configuration *configuration  `json:"configuration"`
		ID            json.RawMessage `json:"id"`

		HistoryLength      *int `json:"historyLength"`
		HistoryLengthSnake *int `json:"history_length"`
		listParams
		pushParams
		// Metadata is official and not read.
		Metadata json.RawMessage `json:"metadata"`
		// path holds the IDs from the URL of a REST request; they take precedence over the body.
		path struct{ task, config string }
	}
	// listParams select the page of ListTasks. The three time filters are the names of different versions and
	// clients for the same filter (see toQuery).
	listParams struct {
		ContextID             string          `json:"contextId"`
		ContextIDSnake        string          `json:"context_id"`
		Status                string          `json:"status"`
		PageSize              *int            `json:"pageSize"`
		PageSizeSnake         *int            `json:"page_size"`
		PageToken             string          `json:"pageToken"`
		PageTokenSnake        string          `json:"page_token"`
		IncludeArtifacts      bool            `json:"includeArtifacts"`
		IncludeArtifactsSnake bool            `json:"include_artifacts"`
		StatusAfter           json.RawMessage `json:"statusTimestampAfter"`
		StatusAfterSnake      json.RawMessage `json:"status_timestamp_after"`
		UpdatedAfter          json.RawMessage `json:"lastUpdatedAfter"`
		UpdatedAfterSnake     json.RawMessage `json:"last_updated_after"`
		UpdatedTime           json.RawMessage `json:"lastUpdatedTime"`
		UpdatedTimeSnake      json.RawMessage `json:"last_updated_time"`
	}
	// pushParams hold the push notification config of a request. Version 1.0 sends its members directly in the
	// params, 0.3 over JSON-RPC in the member pushNotificationConfig, and 0.3 over REST in that member within the
	// member config.
	pushParams struct {
		TaskID      string `json:"taskId"`
		TaskIDSnake string `json:"task_id"`
		PushID      string `json:"pushNotificationConfigId"`
		PushIDSnake string `json:"push_notification_config_id"`
		pushAddress
		pushNested
		Config *pushNested `json:"config"`
	}
	// pushNested is the member pushNotificationConfig under its two spellings.
	pushNested struct {
		Push      *pushConfig `json:"pushNotificationConfig"`
		PushSnake *pushConfig `json:"push_notification_config"`
	}
	// pushConfig is a push notification config with its own ID.
	pushConfig struct {
		ID string `json:"id"`
		pushAddress
	}
	// pushAddress is where notifications are sent and how the server authenticates there. Version 1.0 has one
	// scheme, version 0.3 a list of schemes.
	pushAddress struct {
		URL            string `json:"url"`
		Token          string `json:"token"`
		Authentication *struct {
			Scheme      string   `json:"scheme"`
			Schemes     []string `json:"schemes"`
			Credentials string   `json:"credentials"`
		} `json:"authentication"`
	}
	// configuration is the member of that name in SendMessage. blocking is the name of version 0.3,
	// returnImmediately (with the opposite meaning) that of 1.0.
	configuration struct {
		HistoryLength          *int  `json:"historyLength"`
		HistoryLengthSnake     *int  `json:"history_length"`
		Blocking               *bool `json:"blocking"`
		ReturnImmediately      *bool `json:"returnImmediately"`
		ReturnImmediatelySnake *bool `json:"return_immediately"`
		decode.PushConfig
		AcceptedOutputModes      json.RawMessage `json:"acceptedOutputModes"`
		AcceptedOutputModesSnake json.RawMessage `json:"accepted_output_modes"`
	}
	// message is a message as clients send it. Parts is called content in 0.3 over REST. Role is raw because
	// clients send it as text or as the number of the Protocol Buffers enumeration.
	message struct {
		MessageID      string          `json:"messageId"`
		MessageIDSnake string          `json:"message_id"`
		ContextID      string          `json:"contextId"`
		ContextIDSnake string          `json:"context_id"`
		TaskID         string          `json:"taskId"`
		TaskIDSnake    string          `json:"task_id"`
		Role           json.RawMessage `json:"role"`
		Parts          []part          `json:"parts"`
		Content        []part          `json:"content"`
		Metadata       map[string]any  `json:"metadata"`
	}
	// part is a part in the union of all versions: 1.0 has text, raw, url or data; 0.3 has kind and text, file or
	// data. Pointers distinguish an empty value from a missing one.
	part struct {
		Kind           string          `json:"kind"`
		Text           *string         `json:"text"`
		Raw            *string         `json:"raw"`
		URL            *string         `json:"url"`
		File           *file           `json:"file"`
		Data           json.RawMessage `json:"data"`
		Filename       string          `json:"filename"`
		MediaType      string          `json:"mediaType"`
		MediaTypeSnake string          `json:"media_type"`
	}
	// file is the file of a part in version 0.3; bytes and uri are the names over JSON-RPC, fileWithBytes and
	// fileWithUri those over REST.
	file struct {
		Bytes          string `json:"bytes"`
		BytesLong      string `json:"fileWithBytes"`
		BytesSnake     string `json:"file_with_bytes"`
		URI            string `json:"uri"`
		URILong        string `json:"fileWithUri"`
		URISnake       string `json:"file_with_uri"`
		Name           string `json:"name"`
		MediaType      string `json:"mimeType"`
		MediaTypeSnake string `json:"mime_type"`
	}
)

// Response types for tasks. They exist because timestamps of 1.0 must always have milliseconds, which the library's types
// leave out when they are zero, and because the library's types encode themselves, each part into a copy, the list of
// parts into another one and, in 0.3, the message and the task into two more: a text of 16 MiB would be in memory up to
// six times. Both versions have the same members, in 0.3 with a kind.
type (
	wireTask struct {
		Kind      string         `json:"kind,omitempty"`
		ID        string         `json:"id"`
		Artifacts []wireArtifact `json:"artifacts,omitempty"`
		ContextID string         `json:"contextId"`
		History   []wireMessage  `json:"history,omitempty"`
		Metadata  map[string]any `json:"metadata,omitempty"`
		Status    wireStatus     `json:"status"`
	}
	wireStatus struct {
		Message   *wireMessage `json:"message,omitempty"`
		State     any          `json:"state"`     // a TaskState of the library
		Timestamp any          `json:"timestamp"` // a text in 1.0, else a *time.Time
	}
	wireMessage struct {
		Kind           string         `json:"kind,omitempty"`
		ID             string         `json:"messageId"`
		ContextID      string         `json:"contextId,omitempty"`
		Extensions     []string       `json:"extensions,omitempty"`
		Metadata       map[string]any `json:"metadata,omitempty"`
		Parts          []any          `json:"parts"`
		ReferenceTasks []string       `json:"referenceTaskIds,omitempty"`
		Role           any            `json:"role"` // a MessageRole of the library
		TaskID         string         `json:"taskId,omitempty"`
	}
	wireArtifact struct {
		ID          string         `json:"artifactId"`
		Description string         `json:"description,omitempty"`
		Extensions  []string       `json:"extensions,omitempty"`
		Metadata    map[string]any `json:"metadata,omitempty"`
		Name        string         `json:"name,omitempty"`
		Parts       []any          `json:"parts"`
	}
	// wireText is a part that is a text. Other parts have the library's types.
	wireText struct {
		Kind      string         `json:"kind,omitempty"`
		Text      string         `json:"text"`
		Filename  string         `json:"filename,omitempty"`  // 1.0 only
		MediaType string         `json:"mediaType,omitempty"` // 1.0 only
		Metadata  map[string]any `json:"metadata,omitempty"`
	}

	// statusUpdate10 is a status update of 1.0 with the timestamp of a wireStatus.
	statusUpdate10 struct {
		*spec.TaskStatusUpdateEvent
		Status wireStatus `json:"status"`
	}
	// taskEvent and statusEvent are the members of a stream response (A2A 1.0, StreamResponse) that hold a status.
	taskEvent struct {
		Task wireTask `json:"task"`
	}
	statusEvent struct {
		StatusUpdate statusUpdate10 `json:"statusUpdate"`
	}
	// list10 is a page of tasks of 1.0.
	list10 struct {
		*spec.ListTasksResponse
		Tasks []wireTask `json:"tasks"`
	}
)

func newTask10(t *spec.Task) wireTask {
	out := wireTask{ID: string(t.ID), ContextID: t.ContextID, Metadata: t.Metadata, Status: newStatus10(t.Status)}
	for _, m := range t.History {
		out.History = append(out.History, newMessage10(m))
	}
	for _, a := range t.Artifacts {
		out.Artifacts = append(out.Artifacts, wireArtifact{string(a.ID), a.Description, a.Extensions, a.Metadata, a.Name, newParts10(a.Parts)})
	}
	return out
}

// newStatus10 requires s.Timestamp, which newStatus of convert.go always sets.
func newStatus10(s spec.TaskStatus) wireStatus {
	out := wireStatus{State: s.State, Timestamp: encode.FormatTime(*s.Timestamp)}
	if s.Message != nil {
		m := newMessage10(s.Message)
		out.Message = &m
	}
	return out
}

func newMessage10(m *spec.Message) wireMessage {
	return wireMessage{"", m.ID, m.ContextID, m.Extensions, m.Metadata, newParts10(m.Parts), toStrings(m.ReferenceTasks), m.Role, string(m.TaskID)}
}

func newParts10(parts spec.ContentParts) []any {
	out := make([]any, len(parts))
	for i, p := range parts {
		out[i] = p
		if text, ok := p.Content.(spec.Text); ok {
			out[i] = wireText{"", string(text), p.Filename, p.MediaType, p.Metadata}
		}
	}
	return out
}

func newTask03(t *a2alegacy.Task) wireTask {
	out := wireTask{Kind: "task", ID: string(t.ID), ContextID: t.ContextID, Metadata: t.Metadata, Status: wireStatus{State: t.Status.State, Timestamp: t.Status.Timestamp}}
	if t.Status.Message != nil {
		m := newMessage03(t.Status.Message)
		out.Status.Message = &m
	}
	for _, m := range t.History {
		out.History = append(out.History, newMessage03(m))
	}
	for _, a := range t.Artifacts {
		out.Artifacts = append(out.Artifacts, wireArtifact{string(a.ID), a.Description, a.Extensions, a.Metadata, a.Name, newParts03(a.Parts)})
	}
	return out
}

func newMessage03(m *a2alegacy.Message) wireMessage {
	return wireMessage{"message", m.ID, m.ContextID, m.Extensions, m.Metadata, newParts03(m.Parts), toStrings(m.ReferenceTasks), m.Role, string(m.TaskID)}
}

func newParts03(parts a2alegacy.ContentParts) []any {
	out := make([]any, len(parts))
	for i, p := range parts {
		out[i] = p
		if text, ok := p.(a2alegacy.TextPart); ok {
			out[i] = wireText{Kind: "text", Text: text.Text, Metadata: text.Metadata}
		}
	}
	return out
}

func toStrings[S ~string](all []S) (out []string) {
	for _, s := range all {
		out = append(out, string(s))
	}
	return out
}

// Response types of version 0.3 for a page of tasks. No member is ever left out, so none has omitempty.
type (
	// list03 is a page of tasks over REST; Tasks holds tasks already encoded.
	list03 struct {
		Tasks         []any  `json:"tasks"`
		NextPageToken string `json:"nextPageToken"`
		TotalSize     int    `json:"totalSize"`
	}
	// sizedList is a page of tasks over JSON-RPC, which also has the page size.
	sizedList struct {
		list03
		PageSize int `json:"pageSize"`
	}
)

// newList03 returns a page with len(l.Tasks) empty elements, which the caller fills.
func newList03(l *spec.ListTasksResponse) list03 {
	return list03{make([]any, len(l.Tasks)), l.NextPageToken, l.TotalSize}
}
