// Package llmtest holds the suite that every [llm.Provider] passes, and a server that speaks the wire protocols of
// model vendors for the providers that need one. Both play a script of [Turn]s.
package llmtest

import (
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

// Canary is what the server writes into the body of every error. It must not turn up anywhere else.
const Canary = "canary-of-the-upstream-body"

// Turn is one answer of a model. The first turn of a script whose Text or Tool fits is given.
type Turn struct {
	Text string // the conversation ends with a user message of exactly this text
	Tool string // or with the result of the tool of this name

	Think string   // what the model thinks first, which nobody may see
	Say   []string // pieces of the answer; {{result}} in them is the tool result's text
	Calls []agentsvc.ToolCall
	Usage agentsvc.Usage
	Stop  llm.Stop // [llm.StopLength] or [llm.StopRefusal], else as Calls say

	Hang       bool // stay silent after Say until the caller has gone
	Status     int  // fail with this HTTP status
	RetryAfter time.Duration
}

// Subject is a provider under test. Open counts the upstream requests that are being answered; it is nil where there
// is no upstream.
type Subject struct {
	Provider llm.Provider
	Open     func() int
	// Refuses says that the protocol tells a refusal from an answer.
	Refuses bool
}

// Run checks that the providers that newSubject makes behave as [llm.Provider] promises. A subject plays the script
// it is made with and frees what it holds at the end of its test.
func Run(t *testing.T, newSubject func(t *testing.T, script []Turn) Subject) {
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
			leakCheck(t)
			tt.test(t, newSubject(t, script))
		})
	}
}

// script is what the suite's subjects play.
var script = []Turn{
	{Text: "hello", Say: []string{"Hello ", "to ", "you."}, Usage: agentsvc.Usage{InputTokens: 7, OutputTokens: 3}},
	{Text: "weather", Calls: []agentsvc.ToolCall{{Name: "get_weather", Arguments: []byte(`{"city":"Köln","days":[1,2]}`)}}},
	{Text: "two", Think: "It needs two tools.", Say: []string{"Let me ", "look."}, Calls: []agentsvc.ToolCall{
		{Name: "get_weather", Arguments: []byte(`{"city":"Rome"}`)},
		{Name: "get_time", Arguments: []byte(`{}`)},
	}},
	{Tool: "get_time", Say: []string{"It ", "is ", "{{result}}."}},
	{Text: "may I", Say: []string{"I may ", "not."}, Stop: llm.StopRefusal},
	{Text: "hang", Say: []string{"wait "}, Hang: true},
	{Text: "key", Status: 401},
	{Text: "malformed", Status: 400},
	{Text: "busy", Status: 429},
	{Text: "broken", Status: 500},
}

// tools are what the suite offers to the models.
var tools = []agentsvc.ToolSpec{
	{Name: "get_weather", Description: "the weather", Parameters: []byte(`{"type":"object","properties":{"city":{"type":"string"}}}`)},
	{Name: "get_time", Description: "the time", Parameters: []byte(`{"type":"object"}`)},
}
