// Package llmtest holds the tests that every llm.Provider must pass, and a [Server] that speaks the wire protocols of
// the vendors. [RunSuite] tests the behaviour, [RunHostileSuite] the bounds against a server that misbehaves, and
// [RequireEnvironmentIgnored] that the operator's environment has no effect. Server and suite play a script of
// [Reply]s.
package llmtest

import (
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

// Canary is in the body of every error that the server sends. It must not appear anywhere else.
const Canary = "canary-of-the-upstream-body"

// Reply is one answer of a scripted model. The first reply of a script whose condition holds is given.
type Reply struct {
	// UserText is the condition that the conversation ends with this user message.
	UserText string
	// ToolName is the condition that it ends with a result of this tool.
	ToolName string

	// Thought is what the model thinks first. It must never be shown.
	Thought string
	// Pieces are the pieces of the text. {{result}} in them is the text of the tool result.
	Pieces []string
	Calls  []agentsvc.ToolCall
	Usage  agentsvc.Usage
	// Stop is [llm.StopLength] or [llm.StopRefusal]; otherwise it follows from Calls.
	Stop llm.StopReason

	// Hang makes the server send nothing more after Pieces until the client is gone.
	Hang bool
	// Status makes the call fail with this HTTP status.
	Status     int
	RetryAfter time.Duration
}

// Subject is a provider under test.
type Subject struct {
	Provider llm.Provider
	// OpenRequests returns the number of upstream requests being answered; nil: there is no upstream.
	OpenRequests func() int
	// ReportsRefusal reports that the protocol distinguishes a refusal from an answer.
	ReportsRefusal bool
}

// RunSuite checks that the providers made by newSubject behave as [llm.Provider] requires. A subject plays the given
// script and releases its resources at the end of its test. No goroutine may outlive a test.
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

// suiteScript is the script of the suite's subjects.
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

// suiteTools are the tools that the suite offers.
var suiteTools = []agentsvc.ToolSpec{
	{Name: "get_weather", Description: "the weather", Parameters: []byte(`{"type":"object","properties":{"city":{"type":"string"}}}`)},
	{Name: "get_time", Description: "the time", Parameters: []byte(`{"type":"object"}`)},
}
