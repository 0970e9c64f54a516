package ext

import (
	"encoding/json"

	"stoa/agentsvc/surface"
)

// What comes in. Names are taken in camelCase as well, and a part's type as kind, as other A2A clients write them.
type (
	messageParams struct {
		Tenant        string   `json:"tenant"`
		Message       *message `json:"message"`
		Configuration struct {
			Blocking           *bool `json:"blocking"`
			HistoryLength      *int  `json:"history_length"`
			HistoryLengthCamel *int  `json:"historyLength"`
			surface.PushConfig
		} `json:"configuration"`
	}
	message struct {
		MessageID      string         `json:"message_id"`
		MessageIDCamel string         `json:"messageId"`
		ContextID      string         `json:"context_id"`
		ContextIDCamel string         `json:"contextId"`
		TaskID         string         `json:"task_id"`
		TaskIDCamel    string         `json:"taskId"`
		Role           string         `json:"role"`
		Parts          []part         `json:"parts"`
		Metadata       map[string]any `json:"metadata"`
	}
	part struct {
		Type          string          `json:"type"`
		Kind          string          `json:"kind"`
		Text          *string         `json:"text"`
		Name          string          `json:"name"`
		MimeType      string          `json:"mime_type"`
		MimeTypeCamel string          `json:"mimeType"`
		URL           string          `json:"url"`
		Data          json.RawMessage `json:"data"`
	}
	taskParams struct {
		Tenant             string `json:"tenant"`
		ID                 string `json:"id"`
		TaskID             string `json:"task_id"`
		TaskIDCamel        string `json:"taskId"`
		HistoryLength      *int   `json:"history_length"`
		HistoryLengthCamel *int   `json:"historyLength"`
		After              *int64 `json:"after"`
	}
	cancelBody struct {
		Reason string `json:"reason"`
	}
	listParams struct {
		Tenant           string `json:"tenant"`
		ContextID        string `json:"context_id"`
		Status           string `json:"status"`
		PageSize         *int   `json:"page_size"`
		PageToken        string `json:"page_token"`
		HistoryLength    *int   `json:"history_length"`
		IncludeArtifacts bool   `json:"include_artifacts"`
	}
)

// What goes out, beside the shapes that package surface shares.
type (
	taskList struct {
		Tasks         []surface.TaskRecord `json:"tasks"`
		NextPageToken string               `json:"next_page_token"`
		TotalSize     int                  `json:"total_size"`
	}
	callCancelled struct {
		Cancelled bool   `json:"cancelled"`
		TaskID    string `json:"task_id"`
		CallID    string `json:"call_id"`
	}
	statusUpdate struct {
		Type   string               `json:"type"`
		TaskID string               `json:"task_id"`
		Status surface.StatusRecord `json:"status"`
	}
	artifactUpdate struct {
		Type     string                 `json:"type"`
		TaskID   string                 `json:"task_id"`
		Artifact surface.ArtifactRecord `json:"artifact"`
		Append   bool                   `json:"append"`
		Last     bool                   `json:"last"`
	}
	// cardTotal stands behind the list of cards.
	cardTotal struct {
		Total int `json:"total"`
	}
	// agentCard is a card, in one of its own with the members that official clients read beside those of this surface: where both
	// have one of the same name, it serves both.
	agentCard struct {
		*surface.OfficialCard
		Name               string                    `json:"name"`
		Description        string                    `json:"description"`
		URL                string                    `json:"url"`
		Version            string                    `json:"version"`
		ProtocolVersion    string                    `json:"protocol_version"`
		DefaultInputModes  []string                  `json:"default_input_modes"`
		DefaultOutputModes []string                  `json:"default_output_modes"`
		Capabilities       capabilities              `json:"capabilities"`
		PreferredTransport string                    `json:"preferred_transport"`
		Provider           *provider                 `json:"provider,omitempty"`
		Skills             []skill                   `json:"skills"`
		SecuritySchemes    map[string]securityScheme `json:"security_schemes,omitempty"`
		Security           []map[string][]string     `json:"security,omitempty"`
	}
	capabilities struct {
		*surface.OfficialCapabilities
		Streaming              bool `json:"streaming"`
		PushNotifications      bool `json:"push_notifications"`
		StateTransitionHistory bool `json:"state_transition_history"`
	}
	provider struct {
		Org          string `json:"org"`
		Organization string `json:"organization"`
		URL          string `json:"url"`
	}
	skill struct {
		ID          string   `json:"id"`
		Name        string   `json:"name"`
		Description string   `json:"description"`
		Tags        []string `json:"tags"`
	}
	securityScheme struct {
		Type         string `json:"type"`
		Scheme       string `json:"scheme,omitempty"`
		BearerFormat string `json:"bearer_format,omitempty"`
		Name         string `json:"name,omitempty"`
		In           string `json:"in,omitempty"`
	}
	readyRecord struct {
		Status string `json:"status"`
		Role   string `json:"role,omitempty"`
	}
	healthRecord struct {
		Status     string      `json:"status"`
		StudioMode bool        `json:"studio_mode"`
		Auth       *authRecord `json:"auth,omitempty"`
		Version    string      `json:"version"`
		Database   string      `json:"database"`
	}
	authRecord struct {
		Enabled  bool   `json:"enabled"`
		Type     string `json:"type"`
		Issuer   string `json:"issuer"`
		Audience string `json:"audience"`
		ClientID string `json:"client_id,omitempty"`
	}
)
