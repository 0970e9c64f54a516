package main

import (
	"strings"
	"testing"

	"stoa/tenancy/db/dbtest"
)

// TestFailuresInEveryProtocol fails a task over every protocol: each shows its code and the model, as metadata.error of the
// last message or, for OpenAI's clients, in the error.
func TestFailuresInEveryProtocol(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, dbtest.NewSQLiteURL(t))
	h.createApp(t, "acme", `
llms: {demo: {provider: scripted, script: [{then: [{fail: {status: 400, message: "upstream said no"}}]}]}}
agents: {assistant: {llm: demo}}
`)
	ana, conn := h.createToken(t, "acme", "ana", nil), h.dialGRPC(t)
	answers := map[string]string{}
	for _, d := range dialectRequests {
		body := d.body("break")
		if d.name == "versioned" { // it does not wait unless it is asked to
			body.(map[string]any)["configuration"] = map[string]any{"blocking": true}
		}
		_, answers[d.name] = h.doRequest(t, "POST", d.path, ana, body)
	}
	for name, call := range map[string][2]string{
		"A2A 1.0, gRPC": {service10 + "SendMessage", `{"message": {"messageId": "g1", "role": "ROLE_USER", "parts": [{"text": "break"}]}}`},
		"A2A 0.3, gRPC": {service03 + "SendMessage", `{"request": {"messageId": "g2", "role": "ROLE_USER", "parts": [{"text": "break"}]}, "configuration": {"blocking": true}}`},
	} {
		answer, err := callGRPC(t, conn, ana, call[0], call[1], "assistant")
		if err != nil {
			t.Error(err)
		}
		answers[name] = answer
	}
	for name, answer := range answers {
		for _, want := range []string{`"error":{"`, `"code":"FAILED_PRECONDITION"`, `"provider":"scripted"`, `"status":400`} {
			if !strings.Contains(answer, want) {
				t.Errorf("%s: the failed task has no %s: %s", name, want, answer)
			}
		}
		if strings.Contains(answer, "upstream said no") {
			t.Errorf("%s shows the upstream's text: %s", name, answer)
		}
	}
}
