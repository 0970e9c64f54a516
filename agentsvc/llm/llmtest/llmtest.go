// Package llmtest holds the suite that every [llm.Provider] passes, and a server that speaks the wire protocols of
// model vendors for the providers that need one. Both play a script of [Reply]s.
package llmtest

import (
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

// Canary is what the server writes into the body of every error. It must not turn up anywhere else.
const Canary = "canary-of-the-upstream-body"

// Reply is one answer of a model. The first turn of a script whose Text or Tool fits is given.
type Reply struct {
	UserText string // the conversation ends with a user message of exactly this text
	ToolName string // or with the result of the tool of this name

	Thought string   // what the model thinks first, which nobody may see
	Pieces  []string // pieces of the answer; {{result}} in them is the tool result's text
	Calls   []agentsvc.ToolCall
	Usage   agentsvc.Usage
	Stop    llm.StopReason // [llm.StopLength] or [llm.StopRefusal], else as Calls say

	Hang       bool // stay silent after Say until the caller has gone
	Status     int  // fail with this HTTP status
	RetryAfter time.Duration
}

// Subject is a provider under test. Open counts the upstream requests that are being answered; it is nil where there
// is no upstream.
type Subject struct {
	Provider     llm.Provider
	OpenRequests func() int
	// ReportsRefusal says that the protocol tells a refusal from an answer.
	ReportsRefusal bool
}

// RunSuite checks that the providers that newSubject makes behave as [llm.Provider] promises. A subject plays the script
// it is made with and frees what it holds at the end of its test.
func RunSuite(t *testing.T, newSubject func(t *testing.T, script []Reply) Subject) {
	tests := []struct {
		name string
		test func(t *testing.T, s Subject)
	}{
		{"text", testText},
		{"one call", testCall},
		{"parallel calls", testParallelCalls},
		{"results", testResults},
		{"usage", testUsage},
		{"refusal", testRefusal},
		{"errors", testErrors},
		{"cancel", testCancel},
		{"break", testBreak},
		{"cancelled before", testCancelledBefore},
		{"concurrent use", testConcurrent},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkLeaks(t)
			tt.test(t, newSubject(t, suiteScript))
		})
	}
}

// suiteScript is what the suite's subjects play.
var suiteScript = []Reply{
	{UserText: "hello", Pieces: []string{"Hello ", "to ", "you."}, Usage: agentsvc.Usage{InputTokens: 7, OutputTokens: 3}},
	{UserText: "weather", Calls: []agentsvc.ToolCall{{Name: "get_weather", Arguments: []byte(`{"city":"Köln","days":[1,2]}`)}}},
	{UserText: "two", Thought: "It needs two tools.", Pieces: []string{"Let me ", "look."}, Calls: []agentsvc.ToolCall{
		{Name: "get_weather", Arguments: []byte(`{"city":"Rome"}`)},
		{Name: "get_time", Arguments: []byte(`{}`)},
	}},
	{ToolName: "get_time", Pieces: []string{"It ", "is ", "{{result}}."}},
	{UserText: "may I", Pieces: []string{"I may ", "not."}, Stop: llm.StopRefusal},
	{UserText: "hang", Pieces: []string{"wait "}, Hang: true},
	{UserText: "key", Status: 401},
	{UserText: "malformed", Status: 400},
	{UserText: "busy", Status: 429},
	{UserText: "broken", Status: 500},
}

// suiteTools are what the suite offers to the models.
var suiteTools = []agentsvc.ToolSpec{
	{Name: "get_weather", Description: "the weather", Parameters: []byte(`{"type":"object","properties":{"city":{"type":"string"}}}`)},
	{Name: "get_time", Description: "the time", Parameters: []byte(`{"type":"object"}`)},
}
