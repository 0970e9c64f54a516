package a2a

import (
	"encoding/json"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc/surface"
)

// Request types. One set of structs decodes every version and binding: names are accepted in camelCase and in
// snake_case (the fields that end in Snake), and a part in the shape of any version. Where both spellings are
// present, camelCase wins. Responses have the types of the protocol's library, except for those below.
type (
	params struct {
		Tenant        string          `json:"tenant"`
		Message       *message        `json:"message"`
		Configuration configuration   `json:"configuration"`
		ID            json.RawMessage `json:"id"`

		HistoryLength      *int `json:"historyLength"`
		HistoryLengthSnake *int `json:"history_length"`
		listParams
		pushParams
		// path holds the IDs from the URL of a REST request; they take precedence over the body.
		path struct{ task, toPushConfig string }
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
		surface.PushConfig
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

// Response types of version 1.0. They exist because timestamps must always have milliseconds, which the library's
// types leave out when they are zero.
type (
	// timedStatus replaces the timestamp of the embedded status: the outer member of the same JSON name wins in
	// encoding/json.
	timedStatus struct {
		spec.TaskStatus
		Timestamp string `json:"timestamp"`
	}
	// timedTask, timedUpdate and timedList are the library's types with a timedStatus in the place of their status.
	timedTask struct {
		*spec.Task
		Status timedStatus `json:"status"`
	}
	timedUpdate struct {
		*spec.TaskStatusUpdateEvent
		Status timedStatus `json:"status"`
	}
	timedList struct {
		*spec.ListTasksResponse
		Tasks []timedTask `json:"tasks"`
	}
	// taskEvent and statusEvent are the members of a stream response (A2A 1.0, StreamResponse) that hold a status.
	taskEvent struct {
		Task timedTask `json:"task"`
	}
	statusEvent struct {
		StatusUpdate timedUpdate `json:"statusUpdate"`
	}
)

// newTimedStatus requires s.Timestamp, which newStatus of convert.go always sets.
func newTimedStatus(s spec.TaskStatus) timedStatus {
	return timedStatus{s, surface.FormatTime(*s.Timestamp)}
}

func newTimedTask(t *spec.Task) timedTask { return timedTask{t, newTimedStatus(t.Status)} }

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
