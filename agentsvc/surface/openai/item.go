package openai

import (
	"encoding/json"

	"stoa/agentsvc/surface/decode"
)

// Request types of the Responses API. As in Chat Completions, members that tune a model are not listed and so ignored,
// and members that would change the kind of answer are listed to be refused (responseRequest.checkSupported).
type (
	// responseRequest is the body of a request for a response. Model is the agent's name.
	responseRequest struct {
		Model string `json:"model"`
		// Input is a text or a list of inputItem.
		Input              decode.AliasedJSON `json:"input"`
		Instructions       string             `json:"instructions"`
		PreviousResponseID string             `json:"previous_response_id"`
		Stream             bool               `json:"stream"`
		Background         bool               `json:"background"`
		clientFields

		Store        *bool             `json:"store"`
		Tools        []json.RawMessage `json:"tools"`
		ToolChoice   any               `json:"tool_choice"`
		MaxToolCalls *int              `json:"max_tool_calls"`
		Include      []string          `json:"include"`
		Conversation any               `json:"conversation"`
		Prompt       any               `json:"prompt"`
		TopLogprobs  int               `json:"top_logprobs"`
		Text         struct {
			Format struct {
				Type string `json:"type"`
			} `json:"format"`
		} `json:"text"`
	}
	// inputItem is a message or, by its Type, another item of the conversation.
	inputItem struct {
		Type string `json:"type"`
		Role string `json:"role"`
		// Content is a text or a list of inputPart.
		Content decode.AliasedJSON `json:"content"`

		ApprovalRequestID string `json:"approval_request_id"`
		Approve           *bool  `json:"approve"`
		Reason            string `json:"reason"`
	}
	// inputPart is a part of a message; Type says which of the other members is used.
	inputPart struct {
		Type       string     `json:"type"`
		Text       *string    `json:"text"`
		Refusal    string     `json:"refusal"`
		ImageURL   string     `json:"image_url"`
		FileID     string     `json:"file_id"`
		FileData   string     `json:"file_data"`
		FileURL    string     `json:"file_url"`
		FileName   string     `json:"filename"`
		InputAudio inputAudio `json:"input_audio"`
	}
)

// Response types, as the official client libraries decode them. Members without omitempty are required there, also
// when they are null.
type (
	// responseBody is a Response object.
	responseBody struct {
		ID                 string             `json:"id"`
		Object             string             `json:"object"`
		CreatedAt          int64              `json:"created_at"`
		Status             string             `json:"status"`
		Background         bool               `json:"background,omitempty"`
		Error              *responseError     `json:"error"`
		IncompleteDetails  *incompleteDetails `json:"incomplete_details"`
		Model              string             `json:"model"`
		Output             []any              `json:"output"`
		PreviousResponseID *string            `json:"previous_response_id"`
		Usage              *responseUsage     `json:"usage"`
		User               string             `json:"user,omitempty"`
		SafetyIdentifier   string             `json:"safety_identifier,omitempty"`
		Metadata           map[string]any     `json:"metadata"`
		responseParameters
	}
	// responseParameters are members of a request, with the values of one that leaves them out.
	responseParameters struct {
		Store             bool         `json:"store"`
		ParallelToolCalls bool         `json:"parallel_tool_calls"`
		Instructions      *string      `json:"instructions"`
		Temperature       *float64     `json:"temperature"`
		TopP              *float64     `json:"top_p"`
		ToolChoice        string       `json:"tool_choice"`
		Tools             []struct{}   `json:"tools"`
		Text              responseText `json:"text"`
	}
	responseText struct {
		Format responseFormat `json:"format"`
	}
	responseFormat struct {
		Type string `json:"type"`
	}
	responseError struct {
		Code    string         `json:"code"`
		Message string         `json:"message"`
		Details map[string]any `json:"details,omitempty"`
	}
	incompleteDetails struct {
		Reason string `json:"reason"`
	}
	// responseUsage holds the tokens of all model calls of the turn.
	responseUsage struct {
		Input         int64             `json:"input_tokens"`
		InputDetails  promptDetails     `json:"input_tokens_details"`
		Output        int64             `json:"output_tokens"`
		OutputDetails completionDetails `json:"output_tokens_details"`
		Total         int64             `json:"total_tokens"`
	}
	// messageItem is an output item: a message of the agent.
	messageItem struct {
		ID      string       `json:"id"`
		Type    string       `json:"type"`
		Role    string       `json:"role"`
		Status  string       `json:"status"`
		Content []outputText `json:"content"`
		// Metadata has the citations of an answer.
		Metadata *citations `json:"metadata,omitempty"`
	}
	outputText struct {
		Type        string     `json:"type"`
		Text        string     `json:"text"`
		Annotations []struct{} `json:"annotations"`
		Logprobs    []struct{} `json:"logprobs"`
	}
	// callItem is an output item: a tool call that the server has made. Arguments is JSON text. Output is always null: the
	// result of a call is for the agent's model alone.
	callItem struct {
		ID                string  `json:"id"`
		Type              string  `json:"type"`
		Status            string  `json:"status"`
		ServerLabel       string  `json:"server_label"`
		Name              string  `json:"name"`
		Arguments         string  `json:"arguments"`
		ApprovalRequestID *string `json:"approval_request_id"`
		Output            *string `json:"output"`
		Error             *string `json:"error"`
	}
	// approvalItem is an output item: a tool call that waits for a decision.
	approvalItem struct {
		ID          string `json:"id"`
		Type        string `json:"type"`
		ServerLabel string `json:"server_label"`
		Name        string `json:"name"`
		Arguments   string `json:"arguments"`
	}
)

// Events of a stream. Every event has a type and a sequence number, which counts the events of the stream from 0.
type (
	eventHead struct {
		Type     string `json:"type"`
		Sequence int64  `json:"sequence_number"`
	}
	// lifecycleEvent is an event about the whole response.
	lifecycleEvent struct {
		eventHead
		Response responseBody `json:"response"`
	}
	// itemEvent says that an output item was added, or is done.
	itemEvent struct {
		eventHead
		OutputIndex int `json:"output_index"`
		Item        any `json:"item"`
	}
	// partEvent says that the content of a message begins, or is done.
	partEvent struct {
		eventHead
		textPosition
		Part outputText `json:"part"`
	}
	textDeltaEvent struct {
		eventHead
		textPosition
		Delta    string     `json:"delta"`
		Logprobs []struct{} `json:"logprobs"`
	}
	textDoneEvent struct {
		eventHead
		textPosition
		Text     string     `json:"text"`
		Logprobs []struct{} `json:"logprobs"`
	}
	textPosition struct {
		ItemID       string `json:"item_id"`
		OutputIndex  int    `json:"output_index"`
		ContentIndex int    `json:"content_index"`
	}
	// callEvent is about a tool call; Arguments is present in one type only.
	callEvent struct {
		eventHead
		ItemID      string  `json:"item_id"`
		OutputIndex int     `json:"output_index"`
		Arguments   *string `json:"arguments,omitempty"`
	}
	// streamErrorEvent is an error that ends a stream before its response. Clients read the members of the event or, as
	// the official ones do, those of Error.
	streamErrorEvent struct {
		eventHead
		Code    string      `json:"code"`
		Message string      `json:"message"`
		Param   *string     `json:"param"`
		Error   errorRecord `json:"error"`
	}
)

// eventType returns the type of an event. It is also the name of the server-sent event.
func (h eventHead) eventType() string { return h.Type }
