package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"stoa/agentsvc/task"
	"stoa/billing/calendar"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// paidApp is an app whose model reports usage.
const paidApp = `
llms: {m: {provider: scripted, script: [{when: {text: "^sum$"}, then: [{call: {tool: calc, arguments: {expression: "1+1"}}}]}, {then: [{say: "hello there", usage: {input_tokens: 100, output_tokens: 20}}]}]}}
tools: {calc: {type: function, handler: calculator}}
agents: {assistant: {llm: m, tools: [calc]}}
`

// usageAnswer is the response to a usage query.
type usageAnswer struct {
	From, To string
	Rows     []map[string]any
	Totals   map[string]any
}

// selectFields returns the named fields of a row, in order.
func selectFields(row map[string]any, names ...string) (out []any) {
	for _, n := range names {
		out = append(out, row[n])
	}
	return out
}

func (ts *testServer) getUsage(t *testing.T, path, bearer string) usageAnswer {
	t.Helper()
	var out usageAnswer
	ts.requireStatus(t, http.StatusOK, &out, "GET", path, bearer, nil)
	return out
}

func (ts *testServer) createPrices(t *testing.T) {
	t.Helper()
	ts.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/prices", testSecret, map[string]any{
		"version": "one", "currency": "USD", "effective_from": "2026-01-01T00:00:00Z", "items": []any{
			map[string]any{"kind": "charge", "meter": "input_tokens", "model": "script*", "per": 1, "amount": 3},
			map[string]any{"kind": "charge", "meter": "output_tokens", "model": "*", "per": 1, "amount": 5},
			map[string]any{"kind": "cost", "meter": "model_calls", "per": 1, "amount": 11},
			map[string]any{"kind": "charge", "meter": "tool_calls", "per": 1, "amount": 1000},
		},
	})
}

func (ts *testServer) sendText(t *testing.T, token, text string) (int, string) {
	t.Helper()
	return ts.doRequest(t, "POST", "/agents/assistant", token, newRPCCall("message:send", newTextMessage(text)))
}

// sumMetric returns the sum of a metric over its labels.
func (ts *testServer) sumMetric(t *testing.T, name string) (sum float64) {
	t.Helper()
	families, err := ts.Metrics().Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// TestUsage checks that the usage of a call is counted once, priced, and visible to authorised callers only.
func TestUsage(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"", "storage: {tasks: {backend: inmemory}}\n"} {
		name := "lasting"
		if backend != "" {
			name = "in memory"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachEngine(t, func(t *testing.T, h *testServer) {
				h.createPrices(t)
				h.createApp(t, "acme", backend+paidApp)
				ana, eve := h.createToken(t, "acme", "ana", nil), h.createToken(t, "acme", "eve", map[string]any{"roles": []string{"viewer"}})
				for _, text := range []string{"hi", "sum"} {
					if status, body := h.sendText(t, ana, text); status != http.StatusOK || !strings.Contains(body, "hello there") {
						t.Fatal(status, body)
					}
				}
				var got usageAnswer
				dbtest.WaitUntil(t, "both runs are counted", func() bool {
					got = h.getUsage(t, "/admin/apps/acme/usage?group_by=agent,model,user,day", testSecret)
					return got.Totals["runs"] == 2.0
				})
				names := []string{"agent", "model", "provider", "user", "input_tokens", "output_tokens", "model_calls", "tool_calls", "charge", "cost", "unpriced"}
				var rows [][]any
				for _, r := range got.Rows {
					rows = append(rows, selectFields(r, names...))
				}
				// The call of the tool is 1 word of input and 2 words of output, the answer 1.
				want := [][]any{
					{"assistant", "", "", "ana", 0.0, 0.0, 0.0, 1.0, 1000.0, 0.0, 0.0},
					{"assistant", "scripted", "scripted", "ana", 201.0, 42.0, 3.0, 0.0, 201*3.0 + 42*5, 33.0, 0.0},
				}
				if diff := gocmp.Diff(want, rows); diff != "" {
					t.Errorf("usage (-want +got):\n%s", diff)
				}
				if sum, _ := got.Totals["run_seconds"].(float64); sum <= 0 || got.Totals["charge"] != 1000.0+201*3+42*5 || got.Totals["currency"] != "USD" {
					t.Errorf("totals %v", got.Totals)
				}
				if due := h.sumMetric(t, "stoa_model_cost_total"); math.Abs(due*1e9-(201*3+42*5)) > 0.5 {
					t.Errorf("the metrics show that %v is due", due)
				}
				if status, body := h.doRequest(t, "GET", "/billing/usage", ana, nil); status != http.StatusForbidden {
					t.Errorf("a caller got %d %s", status, body)
				}
				specific := h.getUsage(t, "/billing/usage?group_by=key", eve)
				if specific.Totals["charge"] != got.Totals["charge"] || specific.Totals["cost"] != nil || specific.Rows[0]["key"] != "" {
					t.Errorf("a viewer got %v", specific)
				}
				for path, field := range map[string]string{"?group_by=color": "group_by", "?from=soon": "from", "?from=2026-02-01&to=2026-01-01": "to", "?page=1": "query"} {
					if status, body := h.doRequest(t, "GET", "/admin/apps/acme/usage"+path, testSecret, nil); status != http.StatusBadRequest || !strings.Contains(body, fmt.Sprintf("%q", field)) {
						t.Errorf("%s: %d %s", path, status, body)
					}
				}
			})
		})
	}
}

// TestPlans checks that the limits and models of a plan apply to the apps on it.
func TestPlans(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		plan := map[string]any{"name": "small", "weight": 3, "max_concurrent_tasks": 2, "queue_depth": 7, "allowed_models": []string{"openai/*", "scripted/*"}, "retention": map[string]any{"tasks": "30d"}}
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/plans", testSecret, plan)
		h.requireStatus(t, http.StatusConflict, nil, "POST", "/admin/plans", testSecret, plan)
		h.requireStatus(t, http.StatusNotFound, nil, "PUT", "/admin/plans/large", testSecret, map[string]any{"weight": 1})
		h.requireStatus(t, http.StatusBadRequest, nil, "POST", "/admin/plans", testSecret, map[string]any{"name": "bad", "weight": 1000})
		h.createApp(t, "acme", paidApp)
		if status, body := h.doRequest(t, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"plan": "large"}); status != http.StatusBadRequest || !strings.Contains(body, `there is no plan`) {
			t.Errorf("an unknown plan: %d %s", status, body)
		}
		var app struct {
			Plan   string
			Limits map[string]any
		}
		h.requireStatus(t, http.StatusOK, &app, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"plan": "small", "limits": map[string]any{"queue_depth": 9}})
		if diff := gocmp.Diff(map[string]any{"weight": 3., "max_concurrent_tasks": 2., "queue_depth": 9., "rate": []any{}}, app.Limits); diff != "" || app.Plan != "small" {
			t.Errorf("limits on the plan %q (-want +got):\n%s", app.Plan, diff)
		}
		ana := h.createToken(t, "acme", "ana", nil)
		if status, body := h.sendText(t, ana, "hi"); status != http.StatusOK || !strings.Contains(body, "hello there") {
			t.Fatal(status, body)
		}

		plan["allowed_models"], plan["weight"] = []string{"openai/*"}, 0
		h.requireStatus(t, http.StatusOK, nil, "PUT", "/admin/plans/small", testSecret, plan)
		dbtest.WaitUntil(t, "the app may not call its model any more", func() bool {
			_, body := h.sendText(t, ana, "hi")
			return strings.Contains(body, "the app's plan does not have the model scripted/scripted")
		})
		h.requireStatus(t, http.StatusOK, &app, "GET", "/admin/apps/acme", testSecret, nil)
		if app.Limits["weight"] != 1. {
			t.Errorf("limits %v, want the default weight", app.Limits)
		}
		status, body := h.doRequest(t, "POST", "/admin/apps", testSecret, map[string]any{"name": "globex", "config": paidApp, "plan": "small"})
		if status != http.StatusBadRequest || !strings.Contains(body, `"llms.m.model"`) {
			t.Errorf("a configuration beyond the plan: %d %s", status, body)
		}
	})
}

// TestPlanDocuments checks the limits of a plan for documents at their border: what fits exactly is stored, one more is refused with
// the name of the limit, and a change of the plan takes effect. An app without a plan has the defaults.
func TestPlanDocuments(t *testing.T) {
	t.Parallel()
	const app = `{llms: {m: {provider: scripted}}, agents: {assistant: {llm: m}}, document_stores: {manual: {source: {type: upload}, chunking: {strategy: simple, size: 100, overlap: 0}}}}`
	h := openTestServer(t, dbtest.NewSQLiteURL(t))
	limits := map[string]any{"count": 2, "bytes": 1500, "document_bytes": 1000, "chunks": 12}
	plan := map[string]any{"name": "small", "documents": limits}
	var stored struct{ Documents map[string]any }
	h.requireStatus(t, http.StatusCreated, &stored, "POST", "/admin/plans", testSecret, plan)
	if diff := gocmp.Diff(map[string]any{"count": 2., "bytes": 1500., "document_bytes": 1000., "chunks": 12.}, stored.Documents); diff != "" {
		t.Errorf("the stored limits (-want +got):\n%s", diff)
	}
	for name, most := range map[string]int64{"count": 10_000_000, "bytes": 1 << 44, "document_bytes": 20 << 20, "chunks": 1_000_000} {
		for value, want := range map[int64]int{-1: http.StatusBadRequest, most: http.StatusCreated, most + 1: http.StatusBadRequest} {
			body := map[string]any{"name": fmt.Sprintf("p-%s-%d", name, max(value, 0)), "documents": map[string]any{name: value}}
			if status, answer := h.doRequest(t, "POST", "/admin/plans", testSecret, body); status != want || want != http.StatusCreated && !strings.Contains(answer, "documents."+name) {
				t.Errorf("%s of %d: %d %s", name, value, status, answer)
			}
		}
	}
	tokens := map[string]string{}
	for _, name := range []string{"acme", "globex"} {
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": name, "config": app})
		tokens[name] = h.createToken(t, name, "dev", map[string]any{"roles": []string{"developer"}})
	}
	h.requireStatus(t, http.StatusOK, nil, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"plan": "small"})
	put := func(app, id string, bytes int) (int, string) {
		text := strings.Repeat(strings.Repeat("x", 99)+" ", bytes/100+1)[:bytes]
		return h.doRequest(t, "PUT", "/v1/document-stores/manual/documents/"+id, tokens[app], text)
	}
	accepted := func(app, id string, bytes int) {
		t.Helper()
		if status, body := put(app, id, bytes); status != http.StatusAccepted {
			t.Errorf("%s: %s of %d bytes: %d %s", app, id, bytes, status, body)
		}
	}
	refused := func(id string, bytes int, limit string) {
		t.Helper()
		if status, body := put("acme", id, bytes); status != http.StatusTooManyRequests || !strings.Contains(body, limit) {
			t.Errorf("%s of %d bytes: %d %s, want a refusal by %s", id, bytes, status, body, limit)
		}
	}
	refused("a.txt", 1001, "documents.document_bytes")
	accepted("acme", "a.txt", 1000)
	refused("b.txt", 501, "documents.bytes")
	accepted("acme", "b.txt", 500)
	refused("c.txt", 1, "documents.count")
	// Of one store: a.txt has 10 chunks and b.txt 5, so that one of them is one too many.
	dbtest.WaitUntil(t, "the chunks of one document are refused", func() bool {
		_, body := h.doRequest(t, "GET", "/v1/document-stores/manual/documents?state=failed", tokens["acme"], nil)
		return strings.Contains(body, "it may have 12")
	})
	for id, bytes := range map[string]int{"a.txt": 1001, "b.txt": 1001, "c.txt": 1001} {
		accepted("globex", id, bytes)
	}
	limits["count"], limits["bytes"] = 3, 1501
	h.requireStatus(t, http.StatusOK, nil, "PUT", "/admin/plans/small", testSecret, plan)
	dbtest.WaitUntil(t, "the changed plan applies", func() bool {
		status, _ := put("acme", "c.txt", 1)
		return status == http.StatusAccepted
	})
	refused("d.txt", 1, "documents.count")
}

type budgetAnswer struct {
	Budgets []struct {
		Name                           string
		Committed, Reserved, Remaining int64
		ResetsAt                       *string `json:"resets_at"`
	}
}

// TestBudget checks a hard budget: a call beyond it is refused at admission, and a task that exhausts it fails with a
// reason.
func TestBudget(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		h.createApp(t, "acme", paidApp)
		ana := h.createToken(t, "acme", "ana", nil)
		body := map[string]any{"name": "cap", "scope": map[string]any{"agent": "assistant"}, "unit": "calls", "amount": 2, "window": "month", "timezone": "Europe/Berlin", "hard": true, "on_exhausted": "reject"}
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps/acme/budgets", testSecret, body)
		h.requireStatus(t, http.StatusConflict, nil, "POST", "/admin/apps/acme/budgets", testSecret, body)
		if status, text := h.sendText(t, ana, "hi"); status != http.StatusOK || !strings.Contains(text, "hello there") {
			t.Fatal(status, text)
		}
		// The task needs two calls of a model, and the budget has one left.
		if status, text := h.sendText(t, ana, "sum"); status != http.StatusOK || !strings.Contains(text, "the budget cap (agent assistant) is used up until ") {
			t.Errorf("in the middle: %d %s", status, text)
		}
		var refused struct {
			Error struct {
				Code    string
				Details map[string]any
			}
		}
		h.requireStatus(t, http.StatusTooManyRequests, &refused, "POST", "/agents/assistant", ana, newRPCCall("message:send", newTextMessage("hi")))
		_, until := calendar.Month.Bounds(time.Now(), loadBerlinZone(t))
		if d := refused.Error.Details; refused.Error.Code != "RESOURCE_EXHAUSTED" || d["scope"] != "agent assistant" || d["budget"] != "cap" || !strings.HasPrefix(fmt.Sprint(d["resets_at"]), until.Format("2006-01-02T15:04:05")) {
			t.Errorf("refused with %+v", refused)
		}
		var list budgetAnswer
		h.requireStatus(t, http.StatusOK, &list, "GET", "/billing/budgets", h.createToken(t, "acme", "eve", map[string]any{"roles": []string{"viewer"}}), nil)
		if len(list.Budgets) != 1 || list.Budgets[0].Committed != 2 || list.Budgets[0].Reserved != 0 || list.Budgets[0].Remaining != 0 {
			t.Errorf("budgets %+v", list)
		}
		h.requireStatus(t, http.StatusOK, nil, "PUT", "/admin/apps/acme/budgets/cap", testSecret, map[string]any{"amount": 3})
		if status, text := h.sendText(t, ana, "hi"); status != http.StatusOK || !strings.Contains(text, "hello there") {
			t.Errorf("with the budget raised: %d %s", status, text)
		}
		h.requireStatus(t, http.StatusNoContent, nil, "DELETE", "/admin/apps/acme/budgets/cap", testSecret, nil)
		h.requireStatus(t, http.StatusNotFound, nil, "DELETE", "/admin/apps/acme/budgets/cap", testSecret, nil)
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/budgets", testSecret, map[string]any{"name": "all", "unit": "tokens", "amount": 100, "window": "total", "hard": true})
		if status, text := h.sendText(t, ana, "hi"); status != http.StatusTooManyRequests || !strings.Contains(text, `"resets_at":null`) || !strings.Contains(text, `"scope":"platform"`) {
			t.Errorf("over the platform's budget: %d %s", status, text)
		}
	})
}

// TestPause checks that a task with an exhausted budget waits without an event for its readers and continues when the
// budget is raised.
func TestPause(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"", "storage: {tasks: {backend: inmemory}}\n"} {
		t.Run(cmp.Or(strings.TrimSpace(backend), "lasting"), func(t *testing.T) {
			t.Parallel()
			onEachEngine(t, func(t *testing.T, h *testServer) {
				h.createApp(t, "acme", backend+paidApp)
				ana := h.createToken(t, "acme", "ana", nil)
				h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps/acme/budgets", testSecret, map[string]any{
					"name": "cap", "unit": "calls", "amount": 1, "window": "total", "hard": true, "on_exhausted": "pause",
				})
				var got taskAnswer
				h.requireStatus(t, http.StatusOK, &got, "POST", "/agents/assistant", ana, newRPCCall("message:send", newTextMessage("sum")))
				id := got.Result.TaskID
				if got.Result.Status.State != "input_required" || !strings.HasPrefix(got.statusText(), "Paused: the budget cap (app) is used up. ") {
					t.Fatalf("%+v, want a task that waits", got)
				}
				if _, body := h.doRequest(t, "POST", "/agents/assistant", ana, newRPCCall("message:send", newTextMessage("go on", "task_id", id))); !strings.Contains(body, "waits until its budget has room again") {
					t.Errorf("a message to it: %s", body)
				}
				boss := h.createToken(t, "acme", "boss", map[string]any{"roles": []string{"admin"}})
				if status, body := h.doRequest(t, "POST", "/tasks/"+id+"/approve", boss, map[string]any{}); status != http.StatusConflict {
					t.Errorf("an approval: %d %s", status, body)
				}
				state := func() string {
					h.requireStatus(t, http.StatusOK, &got, "POST", "/agents/assistant", ana, newRPCCall("tasks/get", map[string]any{"id": id}))
					return got.Result.Status.State
				}
				if backend == "" && h.db.Engine() == db.Postgres { // one engine is enough
					time.Sleep(task.BudgetPollInterval + 2*time.Second)
				}
				if s := state(); s != "input_required" {
					t.Fatalf("without memory it is %s", s)
				}
				h.requireStatus(t, http.StatusOK, nil, "PUT", "/admin/apps/acme/budgets/cap", testSecret, map[string]any{"amount": 2})
				dbtest.WaitUntil(t, "the task goes on", func() bool { return state() == "completed" })
				if got.statusText() != "hello there" {
					t.Errorf("it says %q", got.statusText())
				}
				if reported := h.listAuditEntries(t, "app=acme&action=task.resume"); len(reported) != 1 || reported[0].Detail["task"] != id || reported[0].Detail["changed_by"] != "admin" || reported[0].Detail["budget"] != "cap" {
					t.Errorf("the trail says %+v", reported)
				}
				sum := h.getUsage(t, "/admin/apps/acme/usage", testSecret).Totals
				if sum["model_calls"] != 2.0 || sum["tool_calls"] != 1.0 {
					t.Errorf("usage %v, want what one run uses", sum)
				}
			})
		})
	}
}

func loadBerlinZone(t *testing.T) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// TestBudgetAcrossServers lets 200 callers at three servers on one database share a budget of calls and one of
// tokens. The total must be exactly the budget.
func TestBudgetAcrossServers(t *testing.T) {
	t.Parallel()
	database := dbtest.NewPostgresURL(t)
	var servers []*testServer
	for range 3 {
		servers = append(servers, openTestServer(t, database))
	}
	const folder = 23
	servers[0].createApp(t, "acme", paidApp)
	servers[0].requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps/acme/budgets", testSecret, map[string]any{"name": "cap", "unit": "calls", "amount": folder, "window": "year", "hard": true})
	servers[0].requireStatus(t, http.StatusCreated, nil, "POST", "/admin/budgets", testSecret, map[string]any{"name": "much", "unit": "tokens", "amount": 10_000_000, "window": "year", "hard": true})
	ana := servers[0].createToken(t, "acme", "ana", nil)
	for _, h := range servers { // until they have loaded the budget
		dbtest.WaitUntil(t, "a house knows of the budgets", func() bool {
			return h.Dependencies.Billing.Budgets.NewGate("", "").HasBudgets()
		})
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	answered := 0
	for i := range 200 {
		all.Go(func() {
			if _, body := servers[i%3].sendText(t, ana, "hi"); strings.Contains(body, "hello there") {
				mu.Lock()
				answered++
				mu.Unlock()
			} else if !strings.Contains(body, "the budget cap (app) is used up") {
				t.Error(body)
			}
		})
	}
	all.Wait()
	if answered != folder {
		t.Errorf("%d calls were answered, want %d", answered, folder)
	}
	got := servers[1].getUsage(t, "/admin/apps/acme/usage", testSecret)
	if got.Totals["model_calls"] != float64(folder) || got.Totals["input_tokens"] != 100.0*folder {
		t.Errorf("totals %v", got.Totals)
	}
	wrong, err := servers[2].Dependencies.Billing.Budgets.RebuildBalances(t.Context())
	if err != nil || len(wrong) > 0 {
		t.Errorf("balances that the rows do not add up to: %v, %v", wrong, err)
	}
}

// TestBillingCheck checks that stoa billing check corrects a wrong balance and reports it.
func TestBillingCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startProcess(t, dir)
	p.createApp(t, "acme", paidApp)
	p.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps/acme/budgets", testSecret, map[string]any{"name": "cap", "unit": "calls", "amount": 5, "window": "year", "hard": true})
	if status, body := p.sendText(t, p.createToken(t, "acme", "ana", nil), "hi"); status != http.StatusOK {
		t.Fatal(status, body)
	}
	if err := p.SignalAndWait(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.Ended()
	database := "sqlite://" + filepath.Join(dir, "stoa.db")
	d, err := db.Open(t.Context(), database, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b db.Batch
	b.Exec(nil, `UPDATE budget_balance SET committed = 4`)
	if err := errors.Join(d.Platform().Do(t.Context(), &b), d.Close()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		code int
		says string
	}{{exitFailed, "committed 4, now 1"}, {0, "all balances are what was used"}} {
		var out bytes.Buffer
		if code := runCommand(t.Context(), []string{"billing", "check", "--database", database}, &console{out: &out, err: &out}); code != want.code || !strings.Contains(out.String(), want.says) {
			t.Errorf("check %d: exit code %d, %s", i, code, out.String())
		}
	}
}
