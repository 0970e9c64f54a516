package a2a_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// listingConfig is an app whose agent answers with a JSON list.
const listingConfig = `
llms: {demo: {provider: scripted, script: [{then: [{say: "[1,2]"}]}]}}
agents: {lister: {llm: demo, structured_output: {schema: {type: array}}}}
`

// TestObjects checks that clients of version 0.3 receive data that is no object as the member of an object, in
// every kind of response.
func TestObjects(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.CreateApp(t, "lists", listingConfig)
	ana := mintToken(t, h, "lists", "ana")
	const (
		rpc    = "/a2a/lister"
		suffix = "/a2a/lister/v0.3/v1/"
		says   = `{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"hi"}]},"configuration":{"blocking":true}}`
	)
	id := ""
	plain := strings.NewReplacer(" ", "", "\n", "")
	for _, x := range []struct{ name, method, path, body, want string }{
		{"send", "POST", suffix + "message:send", says, `"data":{"data":{"value":[1,2]}},"metadata":{"data_part_compat":true}`},
		{"stream", "POST", suffix + "message:stream", strings.Replace(says, `"m"`, `"n"`, 1), `"data":{"data":{"value":[1,2]}},"metadata":{"data_part_compat":true}`},
		{"get", "GET", suffix + "tasks/ID", "", `"data":{"data":{"value":[1,2]}},"metadata":{"data_part_compat":true}`},
		{"list", "GET", suffix + "tasks?historyLength=5", "", `"data":{"data":{"value":[1,2]}},"metadata":{"data_part_compat":true}`},
		{"list over JSON-RPC", "POST", rpc, `{"jsonrpc":"2.0","id":1,"method":"tasks/list","params":{"historyLength":5}}`,
			`"data":{"value":[1,2]},"metadata":{"data_part_compat":true}`},
		{"list over 1.0", "GET", rpc + "/tasks?historyLength=5", "", `"data":[1,2]`},
	} {
		var body any
		if x.body != "" {
			body = x.body
		}
		resp, answer := h.Do(t, x.method, strings.Replace(x.path, "ID", id, 1), ana, body)
		if resp.StatusCode != http.StatusOK || !strings.Contains(plain.Replace(answer), x.want) {
			t.Errorf("%s: %s %s, want %s", x.name, resp.Status, answer, x.want)
		}
		if found := regexp.MustCompile(`"id": ?"([^"]+)"`).FindStringSubmatch(answer); id == "" && found != nil {
			id = found[1]
		}
	}
}
