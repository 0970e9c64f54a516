package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db/dbtest"
)

// createAPIKey creates an API key of an app.
func (ts *testServer) createAPIKey(t *testing.T, app string, more map[string]any) (k apiKeyRecord) {
	t.Helper()
	body := map[string]any{"name": "test"}
	for name, v := range more {
		body[name] = v
	}
	ts.requireStatus(t, http.StatusCreated, &k, "POST", "/admin/apps/"+app+"/keys", testSecret, body)
	return k
}

// TestAPIKeys creates, uses, rotates and deletes keys of an app and of the default app, in two processes on one
// database.
func TestAPIKeys(t *testing.T) {
	t.Parallel()
	database := dbtest.NewPostgresURL(t)
	h, other := openTestServer(t, database), openTestServer(t, database)
	h.requireStatus(t, 201, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "config": "llms: {default: {provider: scripted}}\nagents: {assistant: {}}"})
	for _, app := range []string{"acme", "default"} {
		t.Run(app, func(t *testing.T) {
			keys := "/admin/apps/" + app + "/keys"
			k := h.createAPIKey(t, app, map[string]any{"name": "ci", "roles": []string{"operator"}})
			if !strings.HasPrefix(k.Key, k.Prefix) || !strings.HasPrefix(k.Key, "stoa_"+app+"_"+k.ID) {
				t.Fatalf("the key is %+v", k)
			}
			narrow := h.createAPIKey(t, app, map[string]any{"scope": "agents:read"})
			works := func(h *testServer, key string, want int) bool {
				status, _ := h.doRequest(t, "POST", "/agents/assistant", key, helloCall)
				return status == want
			}
			var brief apiKeyRecord
			for life := time.Second; ; life *= 4 { // until it is long enough to be valid in both
				end := time.Now().Add(life)
				brief = h.createAPIKey(t, app, map[string]any{"expires_at": end.UTC().Format(time.RFC3339Nano)})
				if works(h, brief.Key, 200) && works(other, brief.Key, 200) {
					break
				}
				if time.Now().Before(end) {
					t.Fatal("a key is refused before its end")
				}
			}
			for _, h := range []*testServer{h, other} {
				h.checkRequests(t, []requestCase{
					{"a call", "POST", "/agents/assistant", k.Key, helloCall, 200, ""},
					{"its role", "GET", "/api/schema", k.Key, nil, 200, ""},
					{"its app's path", "GET", "/apps/" + app + "/agents", k.Key, nil, 200, ""},
					{"another app's path", "GET", "/apps/ghost/agents", k.Key, nil, 404, ""},
					{"the admin API", "GET", "/admin/apps", k.Key, nil, 403, ""},
					{"its scope", "POST", "/agents/assistant", narrow.Key, helloCall, 403, "narrowed"},
					{"a letter changed", "POST", "/agents/assistant", k.Key[:len(k.Key)-1] + "8", helloCall, 401, ""},
					{"another key's secret", "POST", "/agents/assistant", k.Prefix + narrow.Key[len(narrow.Prefix):], helloCall, 401, ""},
					{"another app's name", "POST", "/agents/assistant", strings.Replace(k.Key, app, "ghost", 1), helloCall, 401, ""},
					{"in capitals", "POST", "/agents/assistant", strings.ToUpper(k.Key), helloCall, 401, ""},
				})
			}
			_, task := other.doRequest(t, "POST", "/agents/assistant", k.Key, helloCall)
			var rotated apiKeyRecord
			h.requireStatus(t, 200, &rotated, "POST", keys+"/"+k.ID+":rotate", testSecret, map[string]any{"overlap": "1h"})
			if rotated.Key == k.Key || rotated.ID != k.ID {
				t.Errorf("rotated to %+v", rotated)
			}
			if _, list := other.doRequest(t, "GET", "/tasks", rotated.Key, nil); !strings.Contains(list, textBetween(task, `"task_id":"`, `"`)) {
				t.Error("after the rotation the key does not see its tasks")
			}
			if !works(other, k.Key, 200) || !works(other, rotated.Key, 200) {
				t.Error("both keys are good during the overlap")
			}
			var again apiKeyRecord
			h.requireStatus(t, 200, &again, "POST", keys+"/"+k.ID+":rotate", testSecret, map[string]any{"overlap": "0s"})
			for _, h := range []*testServer{h, other} {
				dbtest.WaitUntil(t, "a key without overlap has ended", func() bool { return works(h, rotated.Key, 401) })
				dbtest.WaitUntil(t, "so has the one before", func() bool { return works(h, k.Key, 401) })
				dbtest.WaitUntil(t, "the new one is good", func() bool { return works(h, again.Key, 200) })
			}
			h.requireStatus(t, 204, nil, "DELETE", keys+"/"+k.ID, testSecret, nil)
			if !works(h, again.Key, 401) {
				t.Error("a deleted key is good in the process that deleted it")
			}
			dbtest.WaitUntil(t, "a deleted key has ended everywhere", func() bool { return works(other, again.Key, 401) })
			dbtest.WaitUntil(t, "a key has expired", func() bool { return works(h, brief.Key, 401) && works(other, brief.Key, 401) })
			h.checkRequests(t, []requestCase{
				{"a key that is gone", "DELETE", keys + "/" + k.ID, testSecret, nil, 404, "no such key"},
				{"a key that is gone", "POST", keys + "/" + k.ID + ":rotate", testSecret, "{}", 404, "no such key"},
				{"no such app", "GET", "/admin/apps/ghost/keys", testSecret, nil, 404, ""},
				{"no name", "POST", keys, testSecret, "{}", 400, "name"},
				{"a role that is none", "POST", keys, testSecret, `{"name": "x", "roles": ["platform_operator"]}`, 400, "roles"},
				{"a scope that is none", "POST", keys, testSecret, `{"name": "x", "scope": "openid"}`, 400, "scope"},
				{"the past", "POST", keys, testSecret, `{"name": "x", "expires_at": "2001-01-01T00:00:00Z"}`, 400, "expires_at"},
				{"no time", "POST", keys, testSecret, `{"name": "x", "expires_at": "tomorrow"}`, 400, "expires_at"},
				{"a long overlap", "POST", keys + "/" + narrow.ID + ":rotate", testSecret, `{"overlap": "9000h"}`, 400, "overlap"},
				{"a key as a subject", "POST", "/admin/apps/" + app + "/tokens:revoke", testSecret, `{"sub": "key:` + k.ID + `"}`, 400, "deleted"},
				{"a token for a key", "POST", "/admin/apps/" + app + "/tokens", testSecret, `{"sub": "key:` + k.ID + `"}`, 400, "API keys"},
			})
			h.requireStatus(t, 204, nil, "POST", "/admin/apps/"+app+"/tokens:revoke", testSecret, "{}")
			if status, _ := h.doRequest(t, "GET", "/agents", narrow.Key, nil); status != 200 {
				t.Errorf("the revocation of tokens has ended a key: %d", status)
			}
			_, list := h.doRequest(t, "GET", keys, testSecret, nil)
			_, trail := h.doRequest(t, "GET", "/admin/audit?app="+app, testSecret, nil)
			for _, secret := range []string{k.Key, rotated.Key, again.Key, narrow.Key} {
				if strings.Contains(list+trail, secret) {
					t.Error("a key is shown again")
				}
			}
			for _, action := range []string{"app.keys.create", "app.keys.rotate", "app.keys.delete"} {
				if !strings.Contains(trail, action) {
					t.Errorf("the audit trail has no %s", action)
				}
			}
		})
	}
}

func textBetween(s, before, after string) string {
	_, remaining, _ := strings.Cut(s, before)
	found, _, _ := strings.Cut(remaining, after)
	return found
}

// TestAPIKeyShownOnce repeats the calls that return a key: the repetition identifies the same key and does not
// contain its text.
func TestAPIKeyShownOnce(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		twice := func(path string, body any) (first, again apiKeyRecord) {
			t.Helper()
			for _, into := range []*apiKeyRecord{&first, &again} {
				req := h.newRequest(t, "POST", path, testSecret, body)
				req.Header.Set("Idempotency-Key", "once-"+path)
				status, text := h.sendRequest(t, req)
				if status/100 != 2 {
					t.Fatalf("%s: %d %s", path, status, text)
				}
				into.Key, into.ID = textBetween(text, `"key":"`, `"`), textBetween(text, `"id":"`, `"`)
			}
			return first, again
		}
		made, again := twice("/admin/apps/default/keys", map[string]any{"name": "x"})
		if made.Key == "" || again.Key != "" || made.ID != again.ID {
			t.Errorf("created %+v, repeated %+v", made, again)
		}
		rotated, again := twice("/admin/apps/default/keys/"+made.ID+":rotate", map[string]any{"overlap": "0s"})
		if rotated.Key == "" || again.Key != "" || rotated.Key == made.Key {
			t.Errorf("rotated %+v, repeated %+v", rotated, again)
		}
		if status, _ := h.doRequest(t, "GET", "/agents", rotated.Key, nil); status != 200 {
			t.Errorf("the rotated key: %d", status)
		}
		rows := h.dumpAppRows(t, "default")
		if len(rows) == 0 {
			t.Fatal("there are no rows to look at")
		}
		for _, row := range rows {
			if strings.Contains(row, rotated.Key[len(rotated.Key)-20:]) {
				t.Errorf("the key lies in the database: %s", row)
			}
		}
	})
}

// TestAPIKeyUse checks that the use of a key is recorded.
func TestAPIKeyUse(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, newSQLiteURL(t))
	k := h.createAPIKey(t, "default", nil)
	for range 3 {
		h.requireStatus(t, 200, nil, "GET", "/agents", k.Key, nil)
	}
	var list struct{ Keys []apiKeyRecord }
	deadline := time.Now().Add(time.Minute)
	for {
		h.requireStatus(t, 200, &list, "GET", "/admin/apps/default/keys", testSecret, nil)
		if list.Keys[0].LastUsedAt != "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the use of the key was not noted")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestAgentSecurity checks the credentials that an agent itself requires, in an open app and in one that requires
// others.
func TestAgentSecurity(t *testing.T) {
	t.Parallel()
	src := `
llms: {default: {provider: scripted}}
agents:
  free: {}
  keyed:
    security: {schemes: {key: {type: apiKey, name: X-Shop-Key, in: header}, token: {type: http, scheme: bearer}}, require: [key]}
  named:
    security: {schemes: {token: {type: http, scheme: bearer, bearer_format: JWT}}, require: [token]}
  both:
    security: {schemes: {key: {type: apiKey, name: X-Shop-Key}, token: {type: http}}, require: [key, token]}
  told:
    security: {schemes: {key: {type: apiKey, name: X-Shop-Key}}}
  inside:
    visibility: internal
    security: {schemes: {key: {type: apiKey, name: X-Shop-Key}}, require: [key]}
`
	file := filepath.Join(t.TempDir(), "stoa.yaml")
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	h := openServerWith(t, newSQLiteURL(t), slog.New(slog.DiscardHandler), file)
	h.requireStatus(t, 201, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "config": src})
	key, weak, foreign := h.createAPIKey(t, "default", nil), h.createAPIKey(t, "default", map[string]any{"roles": []string{"viewer"}}), h.createAPIKey(t, "acme", nil)
	token, acme := h.createToken(t, "default", "ana", nil), h.createToken(t, "acme", "ana", nil)
	for _, tt := range []struct {
		agent, credential, key string
		want                   int
	}{
		{"free", "", "", 200},
		{"keyed", "", "", 401},
		{"keyed", "", key.Key, 200},
		{"keyed", "", key.Key + "a", 401},
		{"keyed", "", weak.Key, 403},
		{"keyed", "", foreign.Key, 401},
		{"keyed", token, "", 401},
		{"keyed", token, key.Key, 200},
		{"keyed", acme, key.Key, 401},
		{"keyed", acme, foreign.Key, 200},
		{"named", "", "", 401},
		{"named", "", key.Key, 401},
		{"named", token, "", 200},
		{"named", key.Key, "", 200},
		{"both", "", key.Key, 401},
		{"both", token, "", 401},
		{"both", token, key.Key, 200},
		{"told", "", "", 200},
		{"inside", "", "", 404},
		{"inside", "", "wrong", 404},
		{"inside", token, "", 401},
		{"inside", "", key.Key, 200},
	} {
		for _, call := range []struct{ base, method string }{
			{"/agents/", "message:send"}, {"/agents/", "tasks/list"}, {"/agents/", "tasks/get"}, {"/agents/", "message:stream"},
			{"/a2a/", "message/send"}, {"/a2a/", "tasks/get"}, {"/a2a/", "message/stream"},
			{"/a2a/", "SendMessage"}, {"/a2a/", "GetTask"}, {"/a2a/", "SendStreamingMessage"},
		} {
			base, method := call.base, call.method
			params := newTextMessage("hi")
			switch {
			case base == "/a2a/" && strings.HasPrefix(method, "message"):
				params = map[string]any{"message": map[string]any{"kind": "message", "messageId": agentsvc.NewID(), "role": "user", "parts": []any{map[string]any{"kind": "text", "text": "hi"}}}}
			case base == "/a2a/":
				params = map[string]any{"message": map[string]any{"messageId": agentsvc.NewID(), "role": "ROLE_USER", "parts": []any{map[string]any{"text": "hi"}}}}
			}
			want := tt.want
			if strings.HasPrefix(method, "tasks") || method == "GetTask" {
				params = map[string]any{"id": unknownIDs.task}
				if tt.key == weak.Key {
					want = 200 // a viewer may read
				}
			}
			// What is wrong with the params is only reported to a caller who may use the agent. Of a type that the
			// params do not have, a method of either version says so.
			for _, params := range []map[string]any{params, {"nosuch": 1}, {"message": 1, "id": 1}} {
				req := h.newRequest(t, "POST", base+tt.agent, tt.credential, newRPCCall(method, params))
				if tt.key != "" {
					req.Header.Set("X-Shop-Key", tt.key)
				}
				if status, body := h.sendRequest(t, req); status != want {
					t.Errorf("%s %s %v with %.12q and %.12q: %d %s, want %d", method, tt.agent, params, tt.credential, tt.key, status, body, want)
				}
			}
		}
	}
	for agent, want := range map[string]string{
		"free":  `"skills":[{"id":"free","name":"free","description":"free answers questions.","tags":["llm"]}]}`,
		"keyed": `"security_schemes":{"key":{"type":"apiKey","name":"X-Shop-Key","in":"header"},"token":{"type":"http","scheme":"bearer"}},"security":[{"key":[]}]}`,
		"both":  `"security":[{"key":[],"token":[]}]}`,
		"told":  `"security_schemes":{"key":{"type":"apiKey","name":"X-Shop-Key","in":"header"}}}`,
	} {
		h.checkRequests(t, []requestCase{{"card", "GET", "/agents/" + agent, "", nil, 200, want}})
	}
	h.checkRequests(t, []requestCase{
		{"the door of an app asks first", "GET", "/apps/acme/agents/keyed", "", nil, 200, `"security":[{"key":[],"token":[]}]}`},
		{"and where the agent names nothing", "GET", "/apps/acme/agents/told", "", nil, 200,
			`"security_schemes":{"bearer":{"type":"http","scheme":"bearer","bearer_format":"JWT"},"key":{"type":"apiKey","name":"X-Shop-Key","in":"header"}},"security":[{"bearer":[]}]}`},
	})
	// A task that was created with a key belongs to the key, in whichever header the key is sent.
	req := h.newRequest(t, "POST", "/agents/keyed", "", helloCall)
	req.Header.Set("X-Shop-Key", key.Key)
	_, task := h.sendRequest(t, req)
	h.checkRequests(t, []requestCase{{"its task", "POST", "/agents/free", key.Key, newRPCCall("tasks/list", map[string]any{}), 200, `"tasks":[]`}})
	if id := textBetween(task, `"task_id":"`, `"`); id == "" {
		t.Errorf("no task: %s", task)
	} else {
		h.checkRequests(t, []requestCase{{"its tasks", "GET", "/tasks", key.Key, nil, 200, fmt.Sprintf("%q", id)}})
	}
}
