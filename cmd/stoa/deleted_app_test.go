package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stoa/cmd/stoa/server"
	"stoa/tenancy/db/dbtest"
)

// canaryMark begins every canary of TestDeletedAppLeavesNoText.
const canaryMark = "zq7x"

// canarySet has one canary text for each kind of tenant text. It is safe for concurrent use, since test servers fill
// templates while the test runs.
type canarySet struct {
	mu    sync.Mutex
	kinds []string
}

// canary returns the canary of a kind.
func (c *canarySet) canary(kind string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.kinds, kind) {
		c.kinds = append(c.kinds, kind)
	}
	return canaryMark + kind + "z"
}

// fillTemplate replaces each {{kind}} of a template by the canary of the kind.
func (c *canarySet) fillTemplate(template string) string {
	for {
		before, remaining, found := strings.Cut(template, "<<")
		if !found {
			return template
		}
		kind, after, _ := strings.Cut(remaining, ">>")
		template = before + c.canary(kind) + after
	}
}

// findKinds returns the kinds whose canary is in data: as plain text, in hexadecimal, or in base64 at any offset.
func (c *canarySet) findKinds(data []byte) (kinds []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := string(data)
	folded := strings.ToLower(text)
	for _, kind := range c.kinds {
		canary := canaryMark + kind + "z"
		forms := []string{canary}
		for offset := range 3 {
			raw := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("-", offset) + canary))
			forms = append(forms, raw[(offset*8+5)/6:len(canary)*8/6]) // without the characters that also encode adjacent bytes
		}
		if strings.Contains(folded, hex.EncodeToString([]byte(canary))) || slices.ContainsFunc(forms, func(f string) bool { return strings.Contains(text, f) }) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// TestCanaryForms checks that findKinds finds a canary in every form.
func TestCanaryForms(t *testing.T) {
	t.Parallel()
	var c canarySet
	text := []byte(`{"a":"` + c.canary("prompt") + `\n"}`)
	for name, data := range map[string][]byte{
		"plain": text, "hex": []byte(hex.EncodeToString(text)), "upper hex": []byte(strings.ToUpper(hex.EncodeToString(text))),
		"base64 0": []byte(base64.StdEncoding.EncodeToString(text)), "base64 1": []byte(base64.StdEncoding.EncodeToString(append([]byte("x"), text...))),
		"base64 2": []byte(base64.RawURLEncoding.EncodeToString(append([]byte("xy"), text...))),
	} {
		if got := c.findKinds(data); !slices.Equal(got, []string{"prompt"}) {
			t.Errorf("%s: found %v", name, got)
		}
	}
	if got := c.findKinds([]byte("nothing")); got != nil {
		t.Errorf("found %v in nothing", got)
	}
}

// canaryConfig has tenant text in every place of a configuration that can contain some. SERVER is the host of a test
// server.
const canaryConfig = `
name: <<docname>>
description: <<docdescription>>
llms:
  m:
    provider: scripted
    script:
      - when: {text: "^<<pattern>>$"}
        then: [{say: <<scriptsay>>}]
      - when: {tool_result: fetch}
        then: [{say: "{{result}}"}]
      - when: {tool_result: calc}
        then: [{say: "{{result}} <<answer>>"}]
      - when: {tool_result: buy}
        then: [{say: "{{result}}"}]
      - when: {tool_result: search_manual}
        then: [{say: "{{result}}"}]
      - when: {text: "look"}
        then: [{call: {tool: search_manual, arguments: {query: <<documentword>>}}}]
      - when: {text: "fetch"}
        then: [{call: {tool: fetch, arguments: {url: "http://<<arguser>>:<<argpass>>@SERVER/page?token=<<argtoken>>"}}}]
      - when: {text: "buy"}
        then: [{call: {tool: buy, arguments: {fail: false, note: <<mcpargument>>}}}]
      - when: {text: "sum"}
        then: [{call: {tool: calc, arguments: {expression: "1+1"}}}]
      - when: {text: "^ask"}
        then: [{ask: <<question>>}]
      - when: {text: "^refuse"}
        then: [{refuse: <<refusal>>}]
      - when: {text: "^break"}
        then: [{fail: {status: 400, message: <<modelerror>>}}]
      - when: {text: "^file"}
        then: [{artifact: {name: <<artifactname>>, media_type: text/plain, text: <<artifacttext>>}}, {artifact: {name: data, data: {<<datakey>>: <<datavalue>>}}}, {say: <<filesay>>}]
      - when: {text: "^json"}
        then: [{say: '{"k":"<<structured>>"}'}]
      - then: [{say: "You said: {{text}}"}]
  away: {provider: openai, model: gpt-4o, api_key: <<apikey>>, base_url: "http://<<urluser>>:<<urlpass>>@SERVER/v1"}
embedders:
  words: {provider: hashing}
document_stores:
  manual: {source: {type: upload}, embedder: words}
tools:
  fetch: {type: function, handler: http_request, description: <<tooldescription>>, credential: {url: "http://SERVER", prompt: <<credentialprompt>>}}
  calc: {type: function, handler: calculator, require_approval: true, approval_prompt: <<approvalprompt>>}
  shop: {url: "http://SERVER/mcp?api_key=<<toolurltoken>>", headers: {X-Key: <<header>>, Authorization: Bearer right-canary}}
agents:
  assistant:
    name: <<agenttitle>>
    description: <<agentdescription>>
    instruction: <<instruction>>
    global_instruction: <<globalinstruction>>
    prompt: {role: <<promptrole>>, guidance: <<guidance>>}
    skills: [{id: <<skillid>>, name: <<skillname>>, description: <<skilldescription>>, tags: [<<skilltag>>]}]
    llm: m
    tools: [fetch, calc, shop]
    notifications: [{id: <<notificationid>>, url: "http://SERVER/told?token=<<standingtoken>>", events: [task.completed, task.failed], headers: {X-Key: <<standingheader>>}, payload: {template: "<<payload>>"}}]
  <<agentname>>: {llm: m, instruction: <<instruction>>}
  reader: {llm: m, document_stores: [manual], include_context: true}
  formal: {llm: m, structured_output: {name: <<schemaname>>, schema: {type: object, properties: {k: {type: string, description: <<schemadescription>>}}}}}
  abroad: {llm: away}
  other: {type: remote, url: "http://<<remoteuser>>:<<remotepass>>@SERVER/remote", credentials: {token: <<remotetoken>>}}
  clock: {llm: m, trigger: {type: schedule, cron: "0 0 1 1 *", input: <<scheduleinput>>}}
  hooked: {llm: m, trigger: {type: webhook, secret: a-secret-of-all-the-hooks, webhook_input: {template: "{{.text}}"}, response: {mode: callback, callback_hosts: ["SERVER"]}}}
guardrails: {g: {input: {injection: {patterns: [<<guardpattern>>]}}}}
storage:
  memory: {backend: keyword}
  checkpoint: {enabled: true, strategy: hybrid, after_tools: true, before_llm: true, interval: 1}
`

// retainedKinds are the kinds of text that stay when an app is deleted; see docs/security.md, "What outlives an app".
var retainedKinds = []string{
	// Names of agents, models, tools ... in paths of configuration changes.
	"agentname",
	"subject", // actors
	"role",    // names of roles and keys, and a role's scopes
	"keyname",
	"budgetname",
	"note",   // reasons and notes of operators
	"reason", //
}

// TestDeletedAppLeavesNoText uses an app with a canary in every kind of text that a tenant can supply, deletes it,
// and searches for the canaries in the bytes of the database (the SQLite file with the files next to it and the
// secrets file, or a dump) and of Redis. The log is searched for everything that was secret.
func TestDeletedAppLeavesNoText(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		url := dbtest.NewSQLiteURL(t)
		file := strings.TrimPrefix(url, "sqlite://")
		testDeletedAppText(t, url, func(t *testing.T) (all []byte) {
			for _, suffix := range []string{"", "-wal", "-shm", ".secrets", "-journal"} {
				data, err := os.ReadFile(file + suffix)
				if err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
				all = append(all, data...)
			}
			return all
		})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		url := dbtest.NewPostgresURL(t)
		testDeletedAppText(t, url, func(t *testing.T) []byte {
			dump, err := exec.CommandContext(t.Context(), "pg_dump", "--dbname", url).Output()
			if err != nil {
				t.Fatalf("pg_dump: %v", err)
			}
			return dump
		})
	})
}

func testDeletedAppText(t *testing.T, database string, bytesOf func(t *testing.T) []byte) {
	var log sharedBuffer
	h := openServerWith(t, database, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), "../../examples/notifications.yaml")
	var c canarySet
	h.useCanaries(t, &c)
	if found := c.findKinds(bytesOf(t)); len(found) < 40 {
		t.Fatalf("before the app is deleted only %d of %d kinds are found: %v", len(found), len(c.kinds), found)
	}
	h.requireStatus(t, http.StatusNoContent, nil, "DELETE", "/admin/apps/acme", testSecret, nil)
	var found []string
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 500 { // the files are rebuilt a second after the last deletion
		if found = c.findKinds(bytesOf(t)); len(subtractStrings(found, retainedKinds)) == 0 {
			break
		}
		<-tick.C
	}
	if left := subtractStrings(found, retainedKinds); len(left) > 0 {
		t.Errorf("%d of %d kinds of text are left of a deleted app: %v", len(left), len(c.kinds), left)
	}
	if idle := subtractStrings(retainedKinds, found); len(idle) > 0 {
		t.Errorf("the list of what outlives an app names what does not: %v", idle)
	}
	if reported := c.findKinds([]byte(log.String())); len(subtractStrings(reported, loggedKinds)) > 0 {
		t.Errorf("the log contains %v", subtractStrings(reported, loggedKinds))
	}
	if keys := dumpRedis(t); len(c.findKinds(keys)) > 0 {
		t.Errorf("Redis holds %v", c.findKinds(keys))
	}
	var out strings.Builder
	if code := runCommand(t.Context(), []string{"audit", "verify", "--server", h.url}, &console{out: &out, err: &out}); code != 0 {
		t.Errorf("the trail is no longer good:\n%s", &out)
	}
}

// loggedKinds are the kinds that the log may contain: names of a configuration's entries, and callers.
var loggedKinds = []string{"agentname", "notificationid", "subject"}

// subtractStrings returns the elements of list that are not in without.
func subtractStrings(list, without []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(without, s) })
}

// dumpRedis returns every key of the test's Redis with its value, nothing without Redis.
func dumpRedis(t *testing.T) (all []byte) {
	t.Helper()
	address := os.Getenv("STOA_TEST_REDIS")
	if address == "" {
		return nil
	}
	options, err := redis.ParseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	keys := client.Scan(t.Context(), 0, "*", 1000).Iterator()
	for keys.Next(t.Context()) {
		value, _ := client.Dump(t.Context(), keys.Val()).Result()
		all = append(append(all, keys.Val()...), value...)
	}
	return all
}

// useCanaries creates the app acme, all of whose texts are canaries of c, uses all of it, changes it and bills its
// usage.
func (ts *testServer) useCanaries(t *testing.T, c *canarySet) {
	t.Helper()
	leakyServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			http.Error(w, c.fillTemplate(`{"error":{"message":"<<upstreamerror>>"}}`), http.StatusBadRequest)
			return
		}
		if r.URL.Path == "/told" || r.URL.Path == "/remote" {
			http.Error(w, c.fillTemplate("<<refusalbody>>"), http.StatusInternalServerError)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/"+c.canary("jwksurl")) {
			fmt.Fprint(w, c.fillTemplate(`{"note":"<<jwksnote>>","keys":[{"kty":"OKP","crv":"Ed25519","kid":"<<keyid>>","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","note":"<<keynote>>"}]}`))
			return
		}
		fmt.Fprint(w, c.fillTemplate("<<toolresult>>"))
	}))
	t.Cleanup(leakyServer.Close)
	host := strings.TrimPrefix(leakyServer.URL, "http://")
	shop := strings.TrimPrefix(newCanaryShop(t, c), "http://")
	config := strings.ReplaceAll(c.fillTemplate(canaryConfig), "SERVER/mcp", shop+"/mcp")
	config = strings.ReplaceAll(config, "SERVER", host)
	ts.createPrices(t)
	create := ts.newRequest(t, "POST", "/admin/apps", testSecret, map[string]any{
		"name": "acme", "config": config, "grants": []string{"private_network"}, "display_name": c.canary("displayname"),
		"labels": map[string]string{c.canary("labelname"): c.canary("labelvalue")}, "secrets": map[string]string{"UPSTREAM": c.canary("secretvalue"), server.NotificationSecretName: "whsec_" + strings.Repeat("YWFh", 10)},
		"auth": map[string]any{"issuer": "https://" + c.canary("issuer") + ".example", "jwks_url": leakyServer.URL + "/" + c.canary("jwksurl"), "audience": c.canary("audience")},
	})
	create.Header.Set("Idempotency-Key", "create")
	if status, body := ts.sendRequest(t, create); status != http.StatusCreated {
		t.Fatalf("create: %d %s", status, body)
	}
	base := "/admin/apps/acme"
	keys := 0
	repeatable := func(status int, method, path string, body any) { // its response is stored for repetitions
		t.Helper()
		keys++
		r := ts.newRequest(t, method, path, testSecret, body)
		r.Header.Set("Idempotency-Key", fmt.Sprint("change-", keys))
		if got, answer := ts.sendRequest(t, r); got != status {
			t.Fatalf("%s %s: %d %s, want %d", method, path, got, answer, status)
		}
	}
	repeatable(http.StatusCreated, "POST", base+"/roles", map[string]any{"name": c.canary("role"), "scopes": []string{"agents:read"}, "description": c.canary("roledescription")})
	repeatable(http.StatusOK, "PUT", base+"/roles/"+c.canary("role"), map[string]any{"scopes": []string{"agents:read", "tasks:read"}, "description": c.canary("laterdescription")})
	ts.createAPIKey(t, "acme", map[string]any{"name": c.canary("keyname")})
	repeatable(http.StatusCreated, "POST", base+"/budgets", map[string]any{"name": c.canary("budgetname"), "scope": map[string]any{"user": c.canary("subject")}, "unit": "calls", "amount": 1000, "window": "day", "hard": true})
	repeatable(http.StatusCreated, "POST", base+"/credits", map[string]any{"amount": 5, "currency": "USD", "note": c.canary("note")})
	repeatable(http.StatusNoContent, "PUT", base+"/secrets/LATER", map[string]any{"value": c.canary("latersecret")})

	ana, op := ts.createToken(t, "acme", c.canary("subject"), nil), ts.createToken(t, "acme", c.canary("subject"), map[string]any{"roles": []string{"operator", "approver"}})
	ts.putCanaries(t, c, op)
	ts.sendCanaries(t, c, ana, op)
	foreign := strings.Join([]string{encodeSegment(`{"alg":"EdDSA","kid":"` + c.canary("keyid") + `"}`), encodeSegment(`{"iss":"https://` + c.canary("issuer") + `.example","aud":"` + c.canary("audience") + `","sub":"x","exp":4102444800}`), "c2ln"}, ".")
	ts.requireStatus(t, http.StatusUnauthorized, nil, "GET", "/apps/acme/tasks", foreign, nil) // the server fetches the keys of the app's issuer
	ts.deliverWebhook(t, "acme", c.canary("webhookbody"), "http://"+host+"/back?token="+c.canary("callbacktoken"), http.StatusAccepted)

	// Former configurations are kept as revisions, and the audit trail has the differences.
	changed := map[string]any{"config": strings.ReplaceAll(config, c.canary("instruction"), c.canary("laterinstruction")), "display_name": c.canary("latername")}
	update := ts.newRequest(t, "PATCH", base, testSecret, changed)
	update.Header.Set("Idempotency-Key", "update")
	if status, body := ts.sendRequest(t, update); status != http.StatusOK {
		t.Fatalf("update: %d %s", status, body)
	}
	repeatable(http.StatusOK, "POST", base+"/revisions/1:restore", nil)
	repeatable(http.StatusOK, "POST", base+":suspend", map[string]any{"reason": c.canary("reason")})
	repeatable(http.StatusOK, "POST", base+":resume", map[string]any{})
	repeatable(http.StatusNoContent, "POST", base+"/tokens:revoke", map[string]any{"sub": c.canary("subject")})
	ts.finalizeInvoice(t, "acme")
	ts.listAuditEntries(t, "app=acme")
}

// newCanaryShop starts an MCP server with a tool whose description and results are canaries.
func newCanaryShop(t *testing.T, c *canarySet) string {
	t.Helper()
	behind := newLeakyServer(t)
	frontend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), r.Method, behind+"/mcp", r.Body)
		if err != nil {
			return
		}
		req.Header = r.Header.Clone()
		req.Header.Set("Authorization", "Bearer right-canary")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		body := make([]byte, 1<<16)
		n, _ := resp.Body.Read(body)
		written := strings.ReplaceAll(string(body[:n]), "right-canary", c.canary("mcpresult"))
		written = strings.ReplaceAll(written, `"inputSchema"`, `"description":"`+c.canary("mcpdescription")+`","inputSchema"`)
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		fmt.Fprint(w, written)
	}))
	t.Cleanup(frontend.Close)
	return frontend.URL
}

// putCanaries uploads a document, all of whose texts are canaries, waits until it is indexed, and searches for it.
func (ts *testServer) putCanaries(t *testing.T, c *canarySet, op string) {
	t.Helper()
	const documents = "/v1/document-stores/manual/documents/"
	put := ts.newRequest(t, "PUT", documents+c.canary("documentid")+".md", op, "# "+c.canary("documentheading")+"\n\nIt is about "+c.canary("documentword")+".\n")
	put.Header.Set("Content-Type", "text/markdown")
	put.Header.Set("X-Document-Title", c.canary("documenttitle"))
	put.Header.Set("X-Document-Metadata", c.fillTemplate(`{"<<documentkey>>": "<<documentvalue>>"}`))
	put.Header.Set("X-Document-Access", c.fillTemplate(`{"subjects": ["<<subject>>"]}`))
	put.Header.Set("Idempotency-Key", "put-document")
	if status, body := ts.sendRequest(t, put); status != http.StatusAccepted {
		t.Fatalf("put a document: %d %s", status, body)
	}
	dbtest.WaitUntil(t, "the document is indexed", func() bool {
		_, body := ts.doRequest(t, "GET", documents+c.canary("documentid")+".md", op, nil)
		return strings.Contains(body, `"indexed"`)
	})
	search := map[string]any{"query": c.canary("documentword") + " " + c.canary("documentquery"), "filter": map[string]string{c.canary("documentkey"): c.canary("documentvalue")}}
	if status, body := ts.doRequest(t, "POST", "/v1/document-stores/manual:search", op, search); status != http.StatusOK || !strings.Contains(body, c.canary("documentheading")) {
		t.Errorf("search: %d %s", status, body)
	}
}

// sendCanaries sends canaries as a user: in messages, decisions and credentials, and has models and tools return
// some.
func (ts *testServer) sendCanaries(t *testing.T, c *canarySet, ana, op string) {
	t.Helper()
	send := func(agent, text string, more ...any) string {
		t.Helper()
		status, body := ts.doRequest(t, "POST", "/agents/"+agent, ana, newRPCCall("message:send", newTextMessage(text, more...)))
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", text, status, body)
		}
		return body
	}
	send("assistant", c.canary("message"), "message_id", c.canary("messageid"), "context_id", c.canary("contextid"), "metadata", map[string]any{c.canary("metakey"): c.canary("metavalue")})
	send("assistant", c.canary("pattern"))
	send(c.canary("agentname"), c.canary("othermessage"))
	send("assistant", "file it")
	send("assistant", "break it")
	send("assistant", "refuse it")
	send("assistant", "ask me")
	send("assistant", "buy it")
	send("formal", "json please")
	send("abroad", c.canary("abroadmessage"))
	send("other", c.canary("remotemessage"))
	if body := send("reader", "look it up"); !strings.Contains(body, c.canary("documentword")) {
		t.Errorf("the agent has not read the document: %s", body)
	}
	parts := []any{
		map[string]any{"type": "data", "data": map[string]any{c.canary("partkey"): c.canary("partvalue")}},
		map[string]any{"type": "file", "file": map[string]any{"name": c.canary("filename"), "mime_type": "text/plain", "file_with_bytes": base64.StdEncoding.EncodeToString([]byte("with " + c.canary("filebytes") + " inside"))}},
	}
	once := ts.newRequest(t, "POST", "/agents/assistant", ana, newRPCCall("message:send", map[string]any{"message": map[string]any{"role": "user", "parts": parts}}))
	once.Header.Set("Idempotency-Key", c.canary("idempotencykey"))
	if status, body := ts.sendRequest(t, once); status != http.StatusOK {
		t.Fatalf("parts: %d %s", status, body)
	}

	for _, how := range []string{"approve", "reject"} {
		task, call := ts.createApprovalTask(t, ana)
		body := map[string]any{"call_id": call, "comment": c.canary("comment" + how)}
		if how == "approve" {
			body["arguments"] = map[string]any{"expression": "2+2"}
		}
		ts.requireStatus(t, http.StatusOK, nil, "POST", "/tasks/"+task+"/"+how, op, body)
		if how == "approve" {
			ts.requireStatus(t, http.StatusOK, nil, "GET", "/tasks/"+task+"/checkpoints", op, nil)
		}
	}
	var waits struct {
		Result struct {
			TaskID string `json:"task_id"`
		}
	}
	ts.requireStatus(t, http.StatusOK, &waits, "POST", "/agents/assistant", ana, newRPCCall("message:send", newTextMessage("fetch it")))
	supplied := map[string]any{"type": "tool_credential", "tool": "fetch", "value": "Bearer " + c.canary("credential")}
	ts.requireStatus(t, http.StatusOK, nil, "POST", "/agents/assistant", ana, newRPCCall("message:send", map[string]any{"message": map[string]any{
		"role": "user", "task_id": waits.Result.TaskID, "parts": []any{map[string]any{"type": "data", "data": supplied}},
	}}))
	ts.sendWithPush(t, ana, c.canary("toldmessage"), c.canary("pushid"), "http://127.0.0.1:9/x?token="+c.canary("pushtoken"))
	dbtest.WaitUntil(t, "a notification fails", func() bool {
		_, body := ts.doRequest(t, "GET", "/tasks?page_size=50", ana, nil)
		return strings.Contains(body, "completed")
	})
}

// TestMaskedSecretKeepsItsHost checks that the configuration in a response can be sent back with the credentials of
// an address masked. With another host it is refused and that host is not called. A restored revision has its own
// secrets.
func TestMaskedSecretKeepsItsHost(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		const config = `{"llms": {"m": {"provider": "openai", "model": "x", "api_key": "sk-zq7x", "base_url": "https://user:zq7x@one.example/v1?token=zq7x"}}, "agents": {"assistant": {"llm": "m"}}}`
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "config": config})
		_, shown := h.doRequest(t, "GET", "/admin/apps/acme", testSecret, nil)
		if strings.Contains(shown, canaryMark) || !strings.Contains(shown, `https://********@one.example/v1?token=********`) {
			t.Fatalf("shown as %s", shown)
		}
		var app struct{ Config map[string]any }
		h.requireStatus(t, http.StatusOK, &app, "GET", "/admin/apps/acme", testSecret, nil)
		replaceConfig := func(host, path string) (int, string) {
			model := app.Config["llms"].(map[string]any)["m"].(map[string]any)
			model["base_url"] = "https://********@" + host + path + "?token=********"
			return h.doRequest(t, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"config": app.Config})
		}
		if status, body := replaceConfig("one.example", "/v2"); status != http.StatusOK {
			t.Errorf("another path: %d %s", status, body)
		}
		status, body := replaceConfig("eve.example", "/v1")
		if status != http.StatusBadRequest || !strings.Contains(body, `"path":"llms.m.api_key"`) || !strings.Contains(body, `"path":"llms.m.base_url"`) || strings.Contains(body, canaryMark) {
			t.Errorf("another host: %d %s", status, body)
		}
		h.requireStatus(t, http.StatusOK, nil, "POST", "/admin/apps/acme/revisions/1:restore", testSecret, nil)
		_, trail := h.doRequest(t, "GET", "/admin/audit?app=acme", testSecret, nil)
		if strings.Contains(trail, canaryMark) || strings.Contains(trail, "one.example") || !strings.Contains(trail, `"config.llms.m.base_url":{"after":"hmac-sha256:`) {
			t.Errorf("the trail: %s", trail)
		}
	})
}

// encodeSegment returns a segment of a JWT.
func encodeSegment(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
