package ext

import (
	"encoding/json"

	"stoa/agentsvc/surface/agentcard"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
)

// Request types. Names are accepted in camelCase as well (the fields that end in Camel), and a part's type as kind,
// because other A2A clients write them so.
type (
	// messageParams are the params of message/send and message/stream. Blocking is a pointer because a missing
	// value means true.
	messageParams struct {
		Tenant        string   `json:"tenant"`
		Message       *message `json:"message"`
		Configuration struct {
			Blocking           *bool `json:"blocking"`
			HistoryLength      *int  `json:"history_length"`
			HistoryLengthCamel *int  `json:"historyLength"`
			ToolResults        bool  `json:"tool_results"`
			decode.PushConfig
			ignoredConfiguration
		} `json:"configuration"`
		ignoredParams
	}
	// message is a message as clients send it. A missing role means the user.
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
	// part is a part of the type that type or kind names. Data is base64 text in a file and an object in a data
	// part. Text is a pointer to distinguish an empty text from a missing one.
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
	// taskParams are the params of every method about one task; each method reads what it needs.
	taskParams struct {
		Tenant             string `json:"tenant"`
		ID                 string `json:"id"`
		TaskID             string `json:"task_id"`
		TaskIDCamel        string `json:"taskId"`
		HistoryLength      *int   `json:"history_length"`
		HistoryLengthCamel *int   `json:"historyLength"`
		After              *int64 `json:"after"`
		ToolResults        bool   `json:"tool_results"`
		ignoredParams
	}
	// cancelBody is the optional body of a tool call's cancellation.
	cancelBody struct {
		Reason string `json:"reason"`
	}
	// listParams select the page of tasks/list; a pointer is nil for a value that is not given.
	listParams struct {
		Tenant           string `json:"tenant"`
		ContextID        string `json:"context_id"`
		Status           string `json:"status"`
		PageSize         *int   `json:"page_size"`
		PageToken        string `json:"page_token"`
		HistoryLength    *int   `json:"history_length"`
		IncludeArtifacts bool   `json:"include_artifacts"`
		ignoredParams
	}
	// ignoredParams and ignoredConfiguration are what A2A allows clients to send and nothing here reads. All other unknown
	// params are refused.
	ignoredParams struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	ignoredConfiguration struct {
		AcceptedOutputModes      json.RawMessage `json:"accepted_output_modes"`
		AcceptedOutputModesCamel json.RawMessage `json:"acceptedOutputModes"`
	}
)

// Response types, in addition to the records that package surface shares among surfaces.
type (
	// taskList is the answer of tasks/list. TotalSize counts all pages.
	taskList struct {
		Tasks         []encode.TaskRecord `json:"tasks"`
		NextPageToken string              `json:"next_page_token"`
		TotalSize     int                 `json:"total_size"`
	}
	// callCancelled is the answer to a tool call's cancellation; Cancelled is always true.
	callCancelled struct {
		Cancelled bool   `json:"cancelled"`
		TaskID    string `json:"task_id"`
		CallID    string `json:"call_id"`
	}
	// statusUpdate is the event of a stream for a status and for new text of the agent (state working). Type is
	// eventStatus.
	statusUpdate struct {
		Type      string              `json:"type"`
		TaskID    string              `json:"task_id"`
		ContextID string              `json:"context_id"`
		Status    encode.StatusRecord `json:"status"`
	}
	// artifactUpdate is the event for an artifact or, with Append, for more parts of one. Type is
	// eventArtifact.
	artifactUpdate struct {
		Type      string                `json:"type"`
		TaskID    string                `json:"task_id"`
		ContextID string                `json:"context_id"`
		Artifact  encode.ArtifactRecord `json:"artifact"`
		Append    bool                  `json:"append"`
		Last      bool                  `json:"last"`
	}
	// toolResult is the event for what a tool answered, which only streams have that asked for it. Text is what the model
	// reads, Agent the path of the sub-agent that called. Type is eventToolResult.
	toolResult struct {
		Type      string `json:"type"`
		TaskID    string `json:"task_id"`
		ContextID string `json:"context_id"`
		CallID    string `json:"call_id"`
		Tool      string `json:"tool"`
		Text      string `json:"text"`
		Failed    bool   `json:"failed"`
		Agent     string `json:"agent,omitempty"`
	}
	// cardTotal holds the members after the list of cards.
	cardTotal struct {
		Total int `json:"total"`
	}
	// agentCard has the members of this surface and, in a full card, those of the official A2A card by embedding.
	// Where both have a member of the same name, the outer one is encoded (encoding/json), and it must be valid for
	// both kinds of clients.
	agentCard struct {
		*agentcard.Card
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
	// capabilities embeds the official ones in the same way.
	capabilities struct {
		*agentcard.Capabilities
		Streaming              bool `json:"streaming"`
		PushNotifications      bool `json:"push_notifications"`
		StateTransitionHistory bool `json:"state_transition_history"`
	}
	// provider has the organization under both names, org for this surface and organization for official clients.
	provider struct {
		Org          string `json:"org"`
		Organization string `json:"organization"`
		URL          string `json:"url"`
	}
	// skill is one ability of an agent; Tags is never null and Description falls back to the name.
	skill struct {
		ID          string   `json:"id"`
		Name        string   `json:"name"`
		Description string   `json:"description"`
		Tags        []string `json:"tags"`
	}
	// securityScheme is a Security Scheme Object of OpenAPI 3: type http with Scheme, or apiKey with Name and In.
	securityScheme struct {
		Type         string `json:"type"`
		Scheme       string `json:"scheme,omitempty"`
		BearerFormat string `json:"bearer_format,omitempty"`
		Name         string `json:"name,omitempty"`
		In           string `json:"in,omitempty"`
	}
	// readyRecord is the answer of /ready while the process may receive requests; otherwise it is an error.
	readyRecord struct {
		Status string `json:"status"`
		Role   string `json:"role,omitempty"`
	}
	// healthRecord is the answer of /health. Database is connected, unreachable or disk_full; DatabaseError is the reason
	// in words, "" while it is connected.
	healthRecord struct {
		Status        string        `json:"status"`
		StudioMode    bool          `json:"studio_mode"`
		Auth          *authRecord   `json:"auth,omitempty"`
		Studio        *studioRecord `json:"studio,omitempty"`
		Version       string        `json:"version"`
		Database      string        `json:"database"`
		DatabaseError string        `json:"database_error,omitempty"`
	}
	// studioRecord describes the studio; /health has it only in studio mode.
	studioRecord struct {
		Enabled      bool     `json:"enabled"`
		AllowedRoles []string `json:"allowed_roles"`
	}
	// savedConfig is the answer of POST /api/config: status is saved, or with dry_run valid.
	savedConfig struct {
		Status  string `json:"status"`
		Message string `json:"message"`
	}
	// authRecord describes how a client logs in; /health has it only if authentication is enabled.
	authRecord struct {
		Enabled  bool   `json:"enabled"`
		Type     string `json:"type"`
		Issuer   string `json:"issuer"`
		Audience string `json:"audience"`
		ClientID string `json:"client_id,omitempty"`
	}
)
