package a2a

import (
	"encoding/json"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc/surface"
)

// What comes in. One set of shapes serves every version and binding: names are taken in camelCase and in snake_case, and
// a part in the shape of any of them. What goes out has the types of the protocol's own library.
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
		path struct{ task, toPushConfig string } // ids that stand there, and then nowhere else
	}
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
	// pushParams is what calls about push notification configs say beside an id: 1.0 has the config's members beside its task,
	// 0.3 in a member of their own, and over REST in one within another.
	pushParams struct {
		TaskID      string `json:"taskId"`
		TaskIDSnake string `json:"task_id"`
		PushID      string `json:"pushNotificationConfigId"`
		PushIDSnake string `json:"push_notification_config_id"`
		pushAddress
		pushNested
		Config *pushNested `json:"config"`
	}
	pushNested struct {
		Push      *pushConfig `json:"pushNotificationConfig"`
		PushSnake *pushConfig `json:"push_notification_config"`
	}
	pushConfig struct {
		ID string `json:"id"`
		pushAddress
	}
	pushAddress struct {
		URL            string `json:"url"`
		Token          string `json:"token"`
		Authentication *struct {
			Scheme      string   `json:"scheme"`
			Schemes     []string `json:"schemes"`
			Credentials string   `json:"credentials"`
		} `json:"authentication"`
	}
	configuration struct {
		HistoryLength          *int  `json:"historyLength"`
		HistoryLengthSnake     *int  `json:"history_length"`
		Blocking               *bool `json:"blocking"`
		ReturnImmediately      *bool `json:"returnImmediately"`
		ReturnImmediatelySnake *bool `json:"return_immediately"`
		surface.PushConfig
	}
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

// What goes out of version 1.0, whose times always have milliseconds.
type (
	timedStatus struct {
		spec.TaskStatus
		Timestamp string `json:"timestamp"`
	}
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
	taskEvent struct {
		Task timedTask `json:"task"`
	}
	statusEvent struct {
		StatusUpdate timedUpdate `json:"statusUpdate"`
	}
)

func newTimedStatus(s spec.TaskStatus) timedStatus {
	return timedStatus{s, surface.FormatTime(*s.Timestamp)}
}

func newTimedTask(t *spec.Task) timedTask { return timedTask{t, newTimedStatus(t.Status)} }

// What goes out of version 0.3 as a page of tasks. No member is ever left out.
type (
	list03 struct {
		Tasks         []any  `json:"tasks"`
		NextPageToken string `json:"nextPageToken"`
		TotalSize     int    `json:"totalSize"`
	}
	sizedList struct {
		list03
		PageSize int `json:"pageSize"`
	}
)

// newList03 returns a page that has room for the tasks of l.
func newList03(l *spec.ListTasksResponse) list03 {
	return list03{make([]any, len(l.Tasks)), l.NextPageToken, l.TotalSize}
}
