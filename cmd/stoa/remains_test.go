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

	"stoa/tenancy/db/dbtest"
)

// canaryMark begins every canary of TestDeletedAppLeavesNoText.
const canaryMark = "zq7x"

// canarySet holds texts that stand for one kind of tenant text each. Test servers fill templates beside the test.
type canarySet struct {
	mu    sync.Mutex
	kinds []string
}

// of returns the canary of a kind.
func (c *canarySet) of(kind string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.kinds, kind) {
		c.kinds = append(c.kinds, kind)
	}
	return canaryMark + kind + "z"
}

// fill replaces each {{kind}} of a template by the canary of the kind.
func (c *canarySet) fill(template string) string {
	for {
		before, rest, found := strings.Cut(template, "<<")
		if !found {
			return template
		}
		kind, after, _ := strings.Cut(rest, ">>")
		template = before + c.of(kind) + after
	}
}

// found returns the kinds whose canary is in data: as it is, in hex, or in base64 at any offset.
func (c *canarySet) found(data []byte) (kinds []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := string(data)
	folded := strings.ToLower(text)
	for _, kind := range c.kinds {
		canary := canaryMark + kind + "z"
		forms := []string{canary}
		for offset := range 3 {
			raw := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("-", offset) + canary))
			forms = append(forms, raw[(offset*8+5)/6:len(canary)*8/6]) // without the characters that the neighbours share
		}
		if strings.Contains(folded, hex.EncodeToString([]byte(canary))) || slices.ContainsFunc(forms, func(f string) bool { return strings.Contains(text, f) }) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// TestCanaryForms: the search of the test below finds a canary in every form that it claims to.
func TestCanaryForms(t *testing.T) {
	t.Parallel()
	var c canarySet
	text := []byte(`{"a":"` + c.of("prompt") + `\n"}`)
	for name, data := range map[string][]byte{
		"plain": text, "hex": []byte(hex.EncodeToString(text)), "upper hex": []byte(strings.ToUpper(hex.EncodeToString(text))),
		"base64 0": []byte(base64.StdEncoding.EncodeToString(text)), "base64 1": []byte(base64.StdEncoding.EncodeToString(append([]byte("x"), text...))),
		"base64 2": []byte(base64.RawURLEncoding.EncodeToString(append([]byte("xy"), text...))),
	} {
		if got := c.found(data); !slices.Equal(got, []string{"prompt"}) {
			t.Errorf("%s: found %v", name, got)
		}
	}
	if got := c.found([]byte("nothing")); got != nil {
		t.Errorf("found %v in nothing", got)
	}
}

// remainsConfig holds tenant text in every place where a configuration may hold some. SERVER is the host of a server outside.
const remainsConfig = `
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

// outlives are the kinds of text that stay when an app is deleted, as docs/security.md has them under "What outlives an app".
var outlives = []string{
	"agentname", // names that a configuration gives its agents, models, tools ..., in the paths of what was changed
	"subject",   // who did what
	"role",      // names of roles and keys, and a role's scopes
	"keyname",
	"budgetname",
	"note",   // what operators wrote as a reason or a note
	"reason", //
}

// TestDeletedAppLeavesNoText uses an app with a canary in every kind of text that a tenant can bring, deletes it, and looks for
// the canaries in the bytes of the database: of the SQLite file, what lies beside it and the secrets file, or of a dump, and of
// Redis. The log is searched as well, for all that was secret.
func TestDeletedAppLeavesNoText(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		url := dbtest.SQLiteURL(t)
		file := strings.TrimPrefix(url, "sqlite://")
		testRemains(t, url, func(t *testing.T) (all []byte) {
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
		url := dbtest.PostgresURL(t)
		testRemains(t, url, func(t *testing.T) []byte {
			dump, err := exec.CommandContext(t.Context(), "pg_dump", "--dbname", url).Output()
			if err != nil {
				t.Fatalf("pg_dump: %v", err)
			}
			return dump
		})
	})
}

func testRemains(t *testing.T, database string, bytesOf func(t *testing.T) []byte) {
	var log shared
	h := openHouseOf(t, database, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), "../../examples/notifications.yaml")
	var c canarySet
	h.useCanaries(t, &c)
	if found := c.found(bytesOf(t)); len(found) < 40 {
		t.Fatalf("before the app is deleted only %d of %d kinds are found: %v", len(found), len(c.kinds), found)
	}
	h.want(t, http.StatusNoContent, nil, "DELETE", "/admin/apps/acme", testSecret, nil)
	var found []string
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 500 { // files are rebuilt a second after the last deletion
		if found = c.found(bytesOf(t)); len(except(found, outlives)) == 0 {
			break
		}
		<-tick.C
	}
	if left := except(found, outlives); len(left) > 0 {
		t.Errorf("%d of %d kinds of text are left of a deleted app: %v", len(left), len(c.kinds), left)
	}
	if idle := except(outlives, found); len(idle) > 0 {
		t.Errorf("the list of what outlives an app names what does not: %v", idle)
	}
	if told := c.found([]byte(log.String())); len(except(told, logged)) > 0 {
		t.Errorf("the log tells %v", except(told, logged))
	}
	if keys := redisText(t); len(c.found(keys)) > 0 {
		t.Errorf("Redis holds %v", c.found(keys))
	}
	var out strings.Builder
	if code := run(t.Context(), []string{"audit", "verify", "--server", h.url}, &console{out: &out, err: &out}); code != 0 {
		t.Errorf("the trail is no longer good:\n%s", &out)
	}
}

// logged are the kinds that the log may tell: names that a configuration gives, and who called.
var logged = []string{"agentname", "notificationid", "subject"}

// except returns what of list is not in the other one.
func except(list, without []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(without, s) })
}

// redisText is every key of the test's Redis with what it holds, nothing where there is none.
func redisText(t *testing.T) (all []byte) {
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

// useCanaries makes the app acme, whose every text is a canary of c, uses all of it, changes it and lets usage be billed.
func (h *testHouse) useCanaries(t *testing.T, c *canarySet) {
	t.Helper()
	blabber := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			http.Error(w, c.fill(`{"error":{"message":"<<upstreamerror>>"}}`), http.StatusBadRequest)
			return
		}
		if r.URL.Path == "/told" || r.URL.Path == "/remote" {
			http.Error(w, c.fill("<<refusalbody>>"), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, c.fill("<<toolresult>>"))
	}))
	t.Cleanup(blabber.Close)
	host := strings.TrimPrefix(blabber.URL, "http://")
	shop := strings.TrimPrefix(newShop(t, c), "http://")
	config := strings.ReplaceAll(c.fill(remainsConfig), "SERVER/mcp", shop+"/mcp")
	config = strings.ReplaceAll(config, "SERVER", host)
	h.prices(t)
	create := h.request(t, "POST", "/admin/apps", testSecret, map[string]any{
		"name": "acme", "config": config, "grants": []string{"private_network"}, "display_name": c.of("displayname"),
		"labels": map[string]string{c.of("labelname"): c.of("labelvalue")}, "secrets": map[string]string{"UPSTREAM": c.of("secretvalue"), notificationSecretName: "whsec_" + strings.Repeat("YWFh", 10)},
		"auth": map[string]any{"issuer": "https://" + c.of("issuer") + ".example", "jwks_url": blabber.URL + "/" + c.of("jwksurl"), "audience": c.of("audience")},
	})
	create.Header.Set("Idempotency-Key", "create")
	if status, body := h.do(t, create); status != http.StatusCreated {
		t.Fatalf("create: %d %s", status, body)
	}
	base := "/admin/apps/acme"
	h.want(t, http.StatusCreated, nil, "POST", base+"/roles", testSecret, map[string]any{"name": c.of("role"), "scopes": []string{"agents:read"}, "description": c.of("roledescription")})
	h.apiKey(t, "acme", map[string]any{"name": c.of("keyname")})
	h.want(t, http.StatusCreated, nil, "POST", base+"/budgets", testSecret, map[string]any{"name": c.of("budgetname"), "scope": map[string]any{"user": c.of("subject")}, "unit": "calls", "amount": 1000, "window": "day", "hard": true})
	h.want(t, http.StatusCreated, nil, "POST", base+"/credits", testSecret, map[string]any{"amount": 5, "currency": "USD", "note": c.of("note")})
	h.want(t, http.StatusNoContent, nil, "PUT", base+"/secrets/LATER", testSecret, map[string]any{"value": c.of("latersecret")})

	ana, op := h.token(t, "acme", c.of("subject"), nil), h.token(t, "acme", c.of("subject"), map[string]any{"roles": []string{"operator", "approver"}})
	h.converse(t, c, ana, op)
	h.deliver(t, "acme", c.of("webhookbody"), "http://"+host+"/back?token="+c.of("callbacktoken"), http.StatusAccepted)

	// What an app was is kept as revisions, and what differs is told of.
	changed := map[string]any{"config": strings.ReplaceAll(config, c.of("instruction"), c.of("laterinstruction")), "display_name": c.of("latername")}
	update := h.request(t, "PUT", base, testSecret, changed)
	update.Header.Set("Idempotency-Key", "update")
	if status, body := h.do(t, update); status != http.StatusOK {
		t.Fatalf("update: %d %s", status, body)
	}
	h.want(t, http.StatusOK, nil, "POST", base+"/revisions/1:restore", testSecret, nil)
	h.want(t, http.StatusOK, nil, "POST", base+":suspend", testSecret, map[string]any{"reason": c.of("reason")})
	h.want(t, http.StatusOK, nil, "POST", base+":resume", testSecret, map[string]any{})
	h.want(t, http.StatusNoContent, nil, "POST", base+"/tokens:revoke", testSecret, map[string]any{"sub": c.of("subject")})
	h.bill(t, "acme")
	h.audited(t, "app=acme")
}

// newShop serves MCP with a tool whose description and results are canaries.
func newShop(t *testing.T, c *canarySet) string {
	t.Helper()
	behind := blabber(t)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		said := strings.ReplaceAll(string(body[:n]), "right-canary", c.of("mcpresult"))
		said = strings.ReplaceAll(said, `"inputSchema"`, `"description":"`+c.of("mcpdescription")+`","inputSchema"`)
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		fmt.Fprint(w, said)
	}))
	t.Cleanup(front.Close)
	return front.URL
}

// converse has a user say, send, decide, supply and be told canaries.
func (h *testHouse) converse(t *testing.T, c *canarySet, ana, op string) {
	t.Helper()
	send := func(agent, text string, more ...any) string {
		t.Helper()
		status, body := h.ask(t, "POST", "/agents/"+agent, ana, rpc("message:send", words(text, more...)))
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", text, status, body)
		}
		return body
	}
	send("assistant", c.of("message"), "message_id", c.of("messageid"), "context_id", c.of("contextid"), "metadata", map[string]any{c.of("metakey"): c.of("metavalue")})
	send("assistant", c.of("pattern"))
	send(c.of("agentname"), c.of("othermessage"))
	send("assistant", "file it")
	send("assistant", "break it")
	send("assistant", "refuse it")
	send("assistant", "ask me")
	send("assistant", "buy it")
	send("formal", "json please")
	send("abroad", c.of("abroadmessage"))
	send("other", c.of("remotemessage"))
	parts := []any{
		map[string]any{"type": "data", "data": map[string]any{c.of("partkey"): c.of("partvalue")}},
		map[string]any{"type": "file", "file": map[string]any{"name": c.of("filename"), "mime_type": "text/plain", "file_with_bytes": base64.StdEncoding.EncodeToString([]byte("with " + c.of("filebytes") + " inside"))}},
	}
	once := h.request(t, "POST", "/agents/assistant", ana, rpc("message:send", map[string]any{"message": map[string]any{"role": "user", "parts": parts}}))
	once.Header.Set("Idempotency-Key", c.of("idempotencykey"))
	if status, body := h.do(t, once); status != http.StatusOK {
		t.Fatalf("parts: %d %s", status, body)
	}

	for _, how := range []string{"approve", "reject"} {
		task, call := h.hold(t, ana)
		body := map[string]any{"call_id": call, "comment": c.of("comment" + how)}
		if how == "approve" {
			body["arguments"] = map[string]any{"expression": "2+2"}
		}
		h.want(t, http.StatusOK, nil, "POST", "/tasks/"+task+"/"+how, op, body)
		if how == "approve" {
			h.want(t, http.StatusOK, nil, "GET", "/tasks/"+task+"/checkpoints", op, nil)
		}
	}
	var waits struct {
		Result struct {
			TaskID string `json:"task_id"`
		}
	}
	h.want(t, http.StatusOK, &waits, "POST", "/agents/assistant", ana, rpc("message:send", words("fetch it")))
	supplied := map[string]any{"type": "tool_credential", "tool": "fetch", "value": "Bearer " + c.of("credential")}
	h.want(t, http.StatusOK, nil, "POST", "/agents/assistant", ana, rpc("message:send", map[string]any{"message": map[string]any{
		"role": "user", "task_id": waits.Result.TaskID, "parts": []any{map[string]any{"type": "data", "data": supplied}},
	}}))
	h.sendTold(t, ana, c.of("toldmessage"), c.of("pushid"), "http://127.0.0.1:9/x?token="+c.of("pushtoken"))
	within(t, 20*time.Second, "a notification fails", func() bool {
		_, body := h.ask(t, "GET", "/tasks?page_size=50", ana, nil)
		return strings.Contains(body, "completed")
	})
}

// TestMaskedSecretKeepsItsHost: what an answer shows of an app can be put back, with the name and password of an address masked;
// with another host it is refused, and nobody is called there. A revision brings its own secrets back.
func TestMaskedSecretKeepsItsHost(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *testHouse) {
		const config = `{"llms": {"m": {"provider": "openai", "model": "x", "api_key": "sk-zq7x", "base_url": "https://user:zq7x@one.example/v1?token=zq7x"}}, "agents": {"assistant": {"llm": "m"}}}`
		h.want(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "config": config})
		_, shown := h.ask(t, "GET", "/admin/apps/acme", testSecret, nil)
		if strings.Contains(shown, canaryMark) || !strings.Contains(shown, `https://********@one.example/v1?token=********`) {
			t.Fatalf("shown as %s", shown)
		}
		var app struct{ Config map[string]any }
		h.want(t, http.StatusOK, &app, "GET", "/admin/apps/acme", testSecret, nil)
		put := func(host, path string) (int, string) {
			model := app.Config["llms"].(map[string]any)["m"].(map[string]any)
			model["base_url"] = "https://********@" + host + path + "?token=********"
			return h.ask(t, "PUT", "/admin/apps/acme", testSecret, map[string]any{"config": app.Config})
		}
		if status, body := put("one.example", "/v2"); status != http.StatusOK {
			t.Errorf("another path: %d %s", status, body)
		}
		status, body := put("eve.example", "/v1")
		if status != http.StatusBadRequest || !strings.Contains(body, `"path":"llms.m.api_key"`) || !strings.Contains(body, `"path":"llms.m.base_url"`) || strings.Contains(body, canaryMark) {
			t.Errorf("another host: %d %s", status, body)
		}
		h.want(t, http.StatusOK, nil, "POST", "/admin/apps/acme/revisions/1:restore", testSecret, nil)
		_, trail := h.ask(t, "GET", "/admin/audit?app=acme", testSecret, nil)
		if strings.Contains(trail, canaryMark) || strings.Contains(trail, "one.example") || !strings.Contains(trail, `"config.llms.m.base_url":{"after":"hmac-sha256:`) {
			t.Errorf("the trail: %s", trail)
		}
	})
}
