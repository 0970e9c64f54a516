package a2a_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2a"
	"stoa/agentsvc/surface/ext"
	"stoa/agentsvc/surface/surfacetest"
)

// TestTooMuch checks that requests beyond the bounds are refused before they are processed, in every version and
// binding.
func TestTooMuch(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	parts := func(n int, name string) string {
		return `{"message": {"messageId": "m", "role": "ROLE_USER", "` + name + `": [` + strings.TrimSuffix(strings.Repeat(`{"text": "a"},`, n), ",") + `]}}`
	}
	rpc := func(method, params string) string {
		return `{"jsonrpc": "2.0", "id": 1, "method": "` + method + `", "params": ` + params + `}`
	}
	huge := `{"message": "` + strings.Repeat("a", 64<<20) + `"}`
	deep := `{"message": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`
	const base = "/a2a/assistant"
	tests := []struct {
		name, path, body string
		status           int
		text             string
	}{
		{"64 MiB over JSON-RPC", base, rpc("SendMessage", huge), 413, "the body is too large, 28 MiB are allowed"},
		{"64 MiB over REST", base + "/message:stream", huge, 413, `"status":"RESOURCE_EXHAUSTED"`},
		{"64 MiB over 0.3 REST", base + "/v0.3/v1/message:send", huge, 413, `"code":413`},
		{"10,000 parts over JSON-RPC", base, rpc("SendMessage", parts(10_000, "parts")), 200, "a message has at most 1000 parts"},
		{"10,000 parts in 0.3", base, rpc("message/stream", parts(10_000, "parts")), 200, `"code":-32602`},
		{"10,000 parts over REST", base + "/message:send", parts(10_000, "parts"), 400, `"reason":"INVALID_PARAMS"`},
		{"10,000 parts over 0.3 REST", base + "/v0.3/v1/message:send", parts(10_000, "content"), 400, `"code":-32602`},
		{"too deep over JSON-RPC", base, rpc("SendMessage", deep), 413, `"code":"RESOURCE_EXHAUSTED"`},
		{"too deep in 0.3", base, rpc("message/send", deep), 413, "nested more than 64 levels deep"},
		{"too deep over REST", base + "/message:send", deep, 413, "nested more than 64 levels deep"},
		{"too deep over 0.3 REST", base + "/v0.3/v1/message:send", deep, 413, `"code":413`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := h.Do(t, http.MethodPost, tt.path, "", tt.body)
			if resp.StatusCode != tt.status || !strings.Contains(body, tt.text) {
				t.Errorf("%d %.300s, want %d with %q", resp.StatusCode, body, tt.status, tt.text)
			}
		})
	}
}

// TestPageToken checks that a page token is refused for another user, another app and another query.
func TestPageToken(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	list := func(token string, req spec.ListTasksRequest) (*spec.ListTasksResponse, error) {
		req.PageSize = 1
		return newClient(t, h, "assistant", "1.0", spec.TransportProtocolJSONRPC, token).ListTasks(t.Context(), &req)
	}
	ana := mintToken(t, h, "acme", "ana")
	c := newClient(t, h, "assistant", "1.0", spec.TransportProtocolJSONRPC, ana)
	sendMessage(t, c, textMessage("hello"))
	sendMessage(t, c, textMessage("hello again"))
	first, err := list(ana, spec.ListTasksRequest{})
	if err != nil || first.NextPageToken == "" {
		t.Fatal(first, err)
	}
	if second, err := list(ana, spec.ListTasksRequest{PageToken: first.NextPageToken}); err != nil || len(second.Tasks) != 1 {
		t.Errorf("the second page is %+v, %v", second, err)
	}
	for name, token := range map[string]string{"another user": h.MintToken(t, "acme", eveSpec), "another app": mintToken(t, h, "globex", "ana")} {
		if _, err := list(token, spec.ListTasksRequest{PageToken: first.NextPageToken}); !errors.Is(err, spec.ErrInvalidParams) {
			t.Errorf("the page token of %s: %v", name, err)
		}
	}
	if _, err := list(ana, spec.ListTasksRequest{PageToken: first.NextPageToken, Status: spec.TaskStateWorking}); !errors.Is(err, spec.ErrInvalidParams) {
		t.Errorf("the page token of another query: %v", err)
	}
}

// TestTenant checks that the tenant of a request must agree with the credential and the path, wherever a version
// and binding has it.
func TestTenant(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, b := range bindings[:2] {
		c := newClient(t, h, "assistant", b.version, b.binding, mintToken(t, h, "acme", "ana"))
		for tenant, want := range map[string]error{"acme": nil, "assistant": nil, "acme/assistant": nil, "globex": errAny, "acme/clerk": errAny} {
			_, err := c.ListTasks(t.Context(), &spec.ListTasksRequest{Tenant: tenant})
			if (err == nil) != (want == nil) {
				t.Errorf("%s: the tenant %s: %v", b.name, tenant, err)
			}
			_, err = c.SendMessage(t.Context(), &spec.SendMessageRequest{Tenant: tenant, Message: textMessage("hello")})
			if (err == nil) != (want == nil) {
				t.Errorf("%s: a message to the tenant %s: %v", b.name, tenant, err)
			}
		}
	}
}

var errAny = errors.New("refused")

// TestResumesStream subscribes after the last event that the client has seen and expects no snapshot of the task.
func TestResumesStream(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	resp, body := h.Do(t, http.MethodPost, "/a2a/assistant/message:send", "", `{"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}`)
	var sent struct{ Task struct{ ID string } }
	if err := json.Unmarshal([]byte(body), &sent); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.StatusCode, body)
	}
	for _, path := range []string{"/a2a/assistant/tasks/" + sent.Task.ID + ":subscribe", "/a2a/assistant/v0.3/v1/tasks/" + sent.Task.ID + ":subscribe"} {
		resp, body := h.Do(t, http.MethodGet, path, "", nil, "Last-Event-ID", "1")
		if resp.StatusCode != http.StatusOK || !strings.HasPrefix(body, "id: 2\n") || strings.Contains(body, `"task":`) || !strings.Contains(body, "TASK_STATE_COMPLETED") {
			t.Errorf("%s goes on with %s", path, body)
		}
	}
}

// TestCardOfExtension creates the official client from the card of the extension surface.
func TestCardOfExtension(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{Default: surfacetest.Script}, func(*surfacetest.Fixture) []surface.Route {
		return append(a2a.Routes(a2a.Options{}), ext.Routes(ext.Options{})...)
	})
	for _, b := range bindings {
		c := newClientAt(t, h, "/agents/assistant", b.version, b.binding, "")
		if done := sendMessage(t, c, textMessage("hello")); messageText(done.Status.Message) != "You said: hello" {
			t.Errorf("%s: %+v", b.name, done.Status)
		}
	}
}

// TestExhausted checks that every binding names the limit that is reached, and that 0.3 has an error code that does
// not mean a fault of the server.
func TestExhausted(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{Default: surfacetest.Script + "rate_limiting: {enabled: true, scope: user, limits: [{type: count, window: month, limit: 1}]}\n"}, func(*surfacetest.Fixture) []surface.Route {
		return a2a.Routes(a2a.Options{})
	})
	const message = `{"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}`
	const base = "/a2a/assistant"
	if resp, body := h.Do(t, http.MethodPost, base+"/message:send", "", message); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.StatusCode, body)
	}
	type detail struct {
		Reason   string
		Metadata map[string]string
	}
	for path, number := range map[string]int{base + "/message:send": 0, base + "/v0.3/v1/message:send": -32000} {
		resp, body := h.Do(t, http.MethodPost, path, "", strings.NewReplacer(`"m"`, `"m2"`).Replace(message), "Content-Type", "application/json")
		var reported struct {
			Code  int
			Error struct{ Details []detail }
		}
		if err := json.Unmarshal([]byte(body), &reported); err != nil || resp.StatusCode != http.StatusTooManyRequests || reported.Code != number || len(reported.Error.Details) == 0 {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
			continue
		}
		d := reported.Error.Details[0]
		if m := d.Metadata; d.Reason != "RESOURCE_EXHAUSTED" || m["rule"] != "user-count-month" || m["scope"] != "user" || m["limit"] != "1" || m["reset"] == "" || m["request_id"] == "" {
			t.Errorf("%s has %+v", path, d)
		}
	}
}
