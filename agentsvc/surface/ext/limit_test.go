package ext_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/admin"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/ext"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/agentsvc/surface/tenantapi"
	"stoa/authz"
	"stoa/ratelimit"
	"stoa/tenancy/db/dbtest"
)

const limitedConfig = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^pay$"}
        then: [{call: {tool: pay, arguments: {expression: "1+1"}}}]
      - when: {text: "^ask$"}
        then: [{ask: "Which city?"}]
      - then: [{say: "You said: {{text}}"}]
        usage: {input_tokens: 30, output_tokens: 12}
tools:
  pay: {type: function, handler: calculator, require_approval: true}
agents:
  assistant: {llm: demo, tools: [pay]}
  other: {llm: demo}
rate_limiting:
  enabled: true
  scope: %s
  backend: %s
  limits: %s
`

// newLimitedFixture serves two apps with the same limits.
func newLimitedFixture(t *testing.T, scope, backend, limits string) (h *surfacetest.Fixture, alice, bob testCaller) {
	t.Helper()
	h = surfacetest.New(t, surfacetest.Options{}, func(h *surfacetest.Fixture) []surface.Route {
		return slices.Concat(ext.Routes(ext.Options{}), tenantapi.Routes(h.Apps, h.Billing.Usage), admin.Routes(admin.Options{Apps: h.Apps, Issuer: h.Issuer, DB: h.DB, DeadLetters: h.DeadLetters}))
	})
	for _, name := range []string{"alice", "bob"} {
		h.CreateApp(t, name, fmt.Sprintf(limitedConfig, scope, backend, limits))
	}
	spec := authz.TokenSpec{Subject: "ana", Roles: []string{"operator"}}
	return h, testCaller{h, h.MintToken(t, "alice", spec)}, testCaller{h, h.MintToken(t, "bob", spec)}
}

type testCaller struct {
	h     *surfacetest.Fixture
	token string
}

// limitAnswer is what a response says about limits.
type limitAnswer struct {
	status    int
	remaining string
	body      string
	header    http.Header
}

func (c testCaller) sendRPC(t *testing.T, method, params string) limitAnswer {
	t.Helper()
	resp, body := c.h.Do(t, http.MethodPost, "/agents/assistant", c.token, newRPCBody(method, params))
	return limitAnswer{resp.StatusCode, resp.Header.Get("X-RateLimit-Remaining"), body, resp.Header}
}

// waitForStableDay waits, if necessary, until the current day lasts for 30 more seconds. All longer windows then
// last as well.
func waitForStableDay(t *testing.T) {
	t.Helper()
	if _, end := ratelimit.Day.BoundsAt(time.Now()); time.Until(end) < 30*time.Second {
		time.Sleep(time.Until(end))
	}
}

// TestLimits checks that calls are counted, that each response has the state of the limits, and that calls beyond a
// limit are refused.
func TestLimits(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"memory", "sql"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			waitForStableDay(t)
			h, alice, bob := newLimitedFixture(t, "user", backend, "[{type: count, window: day, limit: 3}, {type: count, window: month, limit: 100}]")
			for i, step := range []struct {
				who       testCaller
				method    string
				params    string
				status    int
				remaining string
			}{
				{alice, "message:send", newMessageParams("hello", ""), 200, "2"},
				{bob, "message:send", newMessageParams("hello", ""), 200, "2"},
				{testCaller{h, "wrong"}, "message:send", newMessageParams("hello", ""), 401, ""},
				{alice, "message:stream", newMessageParams("hello", ""), 200, "1"},
				{alice, "tasks/list", "{}", 200, ""},
				{alice, "message:send", `{}`, 200, ""}, // a call without a message does not count
				{alice, "message:send", newMessageParams("hello", `, "configuration": {"blocking": false}`), 200, "0"},
				{alice, "message:send", newMessageParams("hello", ""), 429, "0"},
				{alice, "message:stream", newMessageParams("hello", ""), 429, "0"},
				{alice, "tasks/list", "{}", 200, ""},
				{bob, "message:send", newMessageParams("hello", ""), 200, "1"},
			} {
				got := step.who.sendRPC(t, step.method, step.params)
				if got.status != step.status || got.remaining != step.remaining {
					t.Errorf("step %d: %d with %q left, want %d with %q: %s", i, got.status, got.remaining, step.status, step.remaining, got.body)
				}
			}
			got := alice.sendRPC(t, "message:send", newMessageParams("hello", ""))
			_, day := ratelimit.Day.BoundsAt(time.Now())
			start, month := ratelimit.Month.BoundsAt(time.Now())
			seconds, _ := strconv.Atoi(got.header.Get("Retry-After"))
			if untilReset := time.Until(day).Seconds(); float64(seconds) < untilReset || float64(seconds) > untilReset+5 {
				t.Errorf("Retry-After: %d, and the day lasts %.0f s", seconds, untilReset)
			}
			want := map[string]string{
				"RateLimit-Policy":  fmt.Sprintf(`"user-count-day";q=3;w=86400, "user-count-month";q=100;w=%.0f`, month.Sub(start).Seconds()),
				"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": strconv.FormatInt(day.Unix(), 10),
			}
			for name, value := range want {
				if diff := cmp.Diff(value, got.header.Get(name)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
			if remaining := got.header.Get("RateLimit"); !strings.HasPrefix(remaining, `"user-count-day";r=0;t=`+got.header.Get("Retry-After")) || !strings.Contains(remaining, `, "user-count-month";r=97;t=`) {
				t.Errorf("RateLimit: %s", remaining)
			}
			var body struct {
				Error struct {
					Code, Message string
					Details       map[string]any
				}
			}
			if err := json.Unmarshal([]byte(got.body), &body); err != nil {
				t.Fatal(err)
			}
			delete(body.Error.Details, "request_id")
			details := map[string]any{
				"rule": "user-count-day", "scope": "user", "type": "count", "window": "day", "limit": 3.0, "reset": encode.FormatTime(day),
			}
			if diff := cmp.Diff(details, body.Error.Details); body.Error.Code != "RESOURCE_EXHAUSTED" || diff != "" {
				t.Errorf("%s, details (-want +got):\n%s", body.Error.Code, diff)
			}
			if !strings.HasPrefix(body.Error.Message, "limit reached: 3 calls a day per user, try again in ") {
				t.Errorf("it says %q", body.Error.Message)
			}
		})
	}
}

// TestNoLimits checks that responses have no limit headers where there are no limits.
func TestNoLimits(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, ext.Options{})
	resp, _ := h.Do(t, http.MethodPost, "/agents/assistant", "", newRPCBody("message:send", newMessageParams("hello", "")))
	for name := range resp.Header {
		if strings.Contains(strings.ToLower(name), "ratelimit") {
			t.Errorf("%s: %s", name, resp.Header.Get(name))
		}
	}
}

// TestLimitOfSessions checks that each session is counted separately, from its opening message on, and that a message
// without a context begins a session.
func TestLimitOfSessions(t *testing.T) {
	t.Parallel()
	waitForStableDay(t)
	_, alice, _ := newLimitedFixture(t, "session", "memory", "[{type: count, window: day, limit: 2}]")
	in := func(session, text string) string {
		return `{"message": {"role": "user", ` + session + ` "parts": [{"type": "text", "text": "` + text + `"}]}}`
	}
	named := `"context_id": "a",`
	first := alice.sendRPC(t, "message:send", in("", "hello")).parseTask(t)
	second := alice.sendRPC(t, "message:send", in("", "ask")).parseTask(t)
	for i, step := range []struct {
		params    string
		status    int
		remaining string
	}{
		{in(`"context_id": "`+first.ContextID+`",`, "hello"), 200, "0"},
		{in(`"context_id": "`+first.ContextID+`",`, "hello"), 429, "0"},
		{in(`"task_id": "`+second.TaskID+`",`, "Rome"), 200, "0"}, // the task's session
		{in(`"context_id": "`+second.ContextID+`",`, "hello"), 429, "0"},
		{in(named, "hello"), 200, "1"}, {in(named, "hello"), 200, "0"}, {in(named, "hello"), 429, "0"},
		{in("", "hello"), 200, "1"}, {in("", "hello"), 200, "1"}, {in("", "hello"), 200, "1"},
	} {
		if got := alice.sendRPC(t, "message:send", step.params); got.status != step.status || got.remaining != step.remaining {
			t.Errorf("step %d: %d with %q left, want %d with %q: %s", i, got.status, got.remaining, step.status, step.remaining, got.body)
		}
	}
}

// sentTask is the task of a response.
type sentTask struct {
	TaskID    string `json:"task_id"`
	ContextID string `json:"context_id"`
}

func (a limitAnswer) parseTask(t *testing.T) sentTask {
	t.Helper()
	var out struct{ Result sentTask }
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || out.Result.ContextID == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	return out.Result
}

// TestLimitOfSessionTokens checks that the tokens of a session's opening message count in the session.
func TestLimitOfSessionTokens(t *testing.T) {
	t.Parallel()
	waitForStableDay(t)
	_, alice, _ := newLimitedFixture(t, "session", "memory", "[{type: token, window: day, limit: 100}]")
	opened := alice.sendRPC(t, "message:send", newMessageParams("hello", "")).parseTask(t)
	nowhere := `{"message": {"role": "user", "context_id": "` + opened.ContextID + `", "task_id": "01a00000-0000-7000-8000-000000000000", "parts": [{"type": "text", "text": "hello"}]}}`
	dbtest.WaitUntil(t, "42 tokens are used, and 42 are reserved", func() bool { return alice.sendRPC(t, "message:send", nowhere).remaining == "16" })
}

// TestLimitOfAnonymousCallers checks that callers without a credential are one user, and that the refusal says so.
func TestLimitOfAnonymousCallers(t *testing.T) {
	t.Parallel()
	waitForStableDay(t)
	h := surfacetest.New(t, surfacetest.Options{Default: fmt.Sprintf(limitedConfig, "user", "memory", "[{type: count, window: day, limit: 1}]")}, func(*surfacetest.Fixture) []surface.Route {
		return ext.Routes(ext.Options{})
	})
	c := testCaller{h, ""}
	if got := c.sendRPC(t, "message:send", newMessageParams("hello", "")); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	const want = "limit reached: 1 call a day per user (all callers without a credential are one user), try again in"
	if got := c.sendRPC(t, "message:send", newMessageParams("hello", "")); got.status != 429 || !strings.Contains(got.body, want) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestDecisionsAreNotCounted approves a tool call after the limit is reached.
func TestDecisionsAreNotCounted(t *testing.T) {
	t.Parallel()
	waitForStableDay(t)
	_, alice, _ := newLimitedFixture(t, "user", "memory", "[{type: count, window: day, limit: 1}]")
	var out struct {
		Result struct {
			TaskID string `json:"task_id"`
			Status struct{ State string }
		}
	}
	got := alice.sendRPC(t, "message:send", newMessageParams("pay", ""))
	if err := json.Unmarshal([]byte(got.body), &out); err != nil || out.Result.Status.State != "input_required" {
		t.Fatalf("%d %s", got.status, got.body)
	}
	decision := `{"message": {"role": "user", "task_id": "` + out.Result.TaskID + `", "parts": [{"type": "data", "data": {"type": "tool_approval", "decision": "approve"}}]}}`
	if got := alice.sendRPC(t, "message:send", decision); got.status != 200 || got.remaining != "" || !strings.Contains(got.body, "completed") {
		t.Errorf("the decision is answered %d: %s", got.status, got.body)
	}
	if got := alice.sendRPC(t, "message:send", newMessageParams("hello", "")); got.status != 429 {
		t.Errorf("a second call is answered %d", got.status)
	}
}

// TestLimitOfTokens checks that a turn reserves tokens when it starts and settles its actual usage when it ends.
func TestLimitOfTokens(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"memory", "sql"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			waitForStableDay(t)
			_, alice, bob := newLimitedFixture(t, "user", backend, "[{type: token, window: month, limit: 100}]")
			nowhere := `{"message": {"role": "user", "task_id": "01a00000-0000-7000-8000-000000000000", "parts": [{"type": "text", "text": "hello"}]}}`
			// remaining is what is left after the reservation of the same call: one token at first, later as many
			// as the last turns used.
			for i, step := range []struct {
				who       testCaller
				params    string
				status    int
				remaining string
			}{
				{alice, newMessageParams(strings.Repeat("word", 40), ""), 200, "59"},
				{alice, nowhere, 200, "16"}, // 42 were used and 42 are reserved; the reservation is returned
				{alice, newMessageParams("hello", ""), 200, "16"},
				{alice, nowhere, 429, "16"},
				{bob, newMessageParams("hello", ""), 200, "98"},
			} {
				var got limitAnswer
				for range 100 { // usage counts when it is recorded, shortly after the response
					if got = step.who.sendRPC(t, "message:send", step.params); got.remaining == step.remaining {
						break
					}
					if i == 0 || i == 2 || i == 4 {
						break
					}
					time.Sleep(20 * time.Millisecond)
				}
				if got.status != step.status || got.remaining != step.remaining {
					t.Errorf("step %d: %d with %q left, want %d with %q: %s", i, got.status, got.remaining, step.status, step.remaining, got.body)
				}
			}
			if got := alice.limitHeader(t); !strings.Contains(got, `"user-token-month";q=100;w=`) || !strings.Contains(got, `;qu="tokens"`) {
				t.Errorf("RateLimit-Policy: %s", got)
			}
		})
	}
}

func (c testCaller) limitHeader(t *testing.T) string {
	t.Helper()
	return c.sendRPC(t, "message:send", newMessageParams("hello", "")).header.Get("RateLimit-Policy")
}

// TestOperatorsLimits changes the operator's limits of an app while one of its tasks is running: the change acts at
// once, and the task continues.
func TestOperatorsLimits(t *testing.T) {
	t.Parallel()
	waitForStableDay(t)
	h, _, bob := newLimitedFixture(t, "user", "memory", "[{type: count, window: day, limit: 100}]")
	h.CreateApp(t, "carol", strings.Replace(slowConfig, "agents: {", "agents: {other: {llm: demo}, ", 1))
	carol := testCaller{h, h.MintToken(t, "carol", authz.TokenSpec{Subject: "ana"})}
	var under struct {
		Result struct {
			TaskID string `json:"task_id"`
		}
	}
	got := carol.sendRPC(t, "message:send", newMessageParams("slow", `, "configuration": {"blocking": false}`))
	if err := json.Unmarshal([]byte(got.body), &under); err != nil || under.Result.TaskID == "" {
		t.Fatalf("%d %s", got.status, got.body)
	}
	setRate := func(rate string) {
		t.Helper()
		if resp, body := h.Do(t, http.MethodPatch, "/admin/apps/carol", surfacetest.Secret, `{"limits": {"rate": `+rate+`}}`); resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
	}
	for i, step := range []struct {
		rate string
		want []int
	}{
		{`[{"per": "app", "type": "count", "window": "day", "limit": 2}]`, []int{200, 200, 429}},
		{`[{"per": "app", "type": "count", "window": "day", "limit": 3}]`, []int{200, 429}}, // the count of the former limit continues
		{`[{"per": "agent", "agent": "other", "type": "count", "window": "day", "limit": 1}]`, []int{200, 200}},
		{`[{"per": "agent", "agent": "assistant", "type": "count", "window": "day", "limit": 1}]`, []int{200, 429}},
		{`[{"per": "key", "type": "count", "window": "day", "limit": 1}]`, []int{200, 200}}, // the caller has a token, no key
		{`[]`, []int{200, 200}},
	} {
		setRate(step.rate)
		for j, want := range step.want {
			if got := carol.sendRPC(t, "message:send", newMessageParams("hello", "")); got.status != want {
				t.Errorf("step %d, call %d: %d, want %d: %s", i, j, got.status, want, got.body)
			}
		}
	}
	if got := bob.sendRPC(t, "message:send", newMessageParams("hello", "")); got.remaining != "99" {
		t.Errorf("another app has %s calls left, want 99", got.remaining)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		got := carol.sendRPC(t, "tasks/get", `{"id": "`+under.Result.TaskID+`"}`)
		if strings.Contains(got.body, `"completed"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the task that was at work: %s", got.body)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestOperatorsLimitsAreChecked checks that invalid limits are refused with the path of the wrong member.
func TestOperatorsLimitsAreChecked(t *testing.T) {
	t.Parallel()
	h, _, _ := newLimitedFixture(t, "user", "memory", "[{type: count, window: day, limit: 100}]")
	rate := func(more string) string { return `{"type": "count", "window": "day", "limit": 1, ` + more + `}` }
	for _, tt := range []struct{ rate, field string }{
		{rate(`"per": "user"`), "limits.rate[0].per"},
		{rate(`"per": "app", "type": "bytes"`), "limits.rate[0].type"},
		{rate(`"per": "app", "window": "year"`), "limits.rate[0].window"},
		{rate(`"per": "app", "limit": 0`), "limits.rate[0].limit"},
		{rate(`"per": "app", "limit": 1000000000001`), "limits.rate[0].limit"},
		{rate(`"per": "app", "agent": "assistant"`), "limits.rate[0].agent"},
		{rate(`"per": "agent", "agent": "a b"`), "limits.rate[0].agent"},
		{rate(`"per": "app"`) + "," + rate(`"per": "app", "limit": 2`), "limits.rate[1]"},
	} {
		resp, body := h.Do(t, http.MethodPatch, "/admin/apps/alice", surfacetest.Secret, `{"limits": {"rate": [`+tt.rate+`]}}`)
		if resp.StatusCode != 400 || !strings.Contains(body, `"field":"`+tt.field+`"`) {
			t.Errorf("%s is answered %d %s; want 400 and %s", tt.rate, resp.StatusCode, body, tt.field)
		}
	}
	app, err := h.Apps.LoadApp(t.Context(), "alice")
	if err != nil || len(app.Limits.Rates) > 0 {
		t.Errorf("the app has %v (%v)", app.Limits.Rates, err)
	}
}
