package faults_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestF7Changes disconnects Redis and then lets one process change what apps may do: budgets, prices, plans, limits,
// secrets, roles, keys, tokens, their status. Two seconds later each change applies at both processes, exactly.
func TestF7Changes(t *testing.T) {
	t.Parallel()
	states := []struct {
		name  string
		state linkState
	}{{"refused", linkRefused}, {"half-open", linkHalfOpen}, {"black-hole", linkBlackHole}}
	if !isFull {
		reportSkipped(t, "Redis that swallows; make faults does it")
		states = states[:1]
	}
	c := startCluster(t, clusterOptions{nodes: 2, redis: true, args: longStaleArgs})
	for _, x := range states {
		cases := changeCases(x.name)
		for i := range cases {
			c.prepareCase(&cases[i])
		}
		for _, n := range c.nodes {
			n.redisProxy.setState(x.state)
			if x.state.refuses {
				n.redisProxy.cutConnections()
			}
		}
		for i := range cases {
			c.applyChange(&cases[i])
		}
		sleepContext(c.Context(), 2*time.Second)
		for i := range cases {
			k := &cases[i]
			if got := c.countPassed(k); got != k.wantPassed {
				t.Errorf("%s: %s: %d of %d calls passed two seconds after the change, want %d", x.name, k.name, got, callsPerCase, k.wantPassed)
			} else {
				reportf(t, "%s: %s: %d of %d calls passed", x.name, k.name, got, callsPerCase)
			}
		}
		for _, n := range c.nodes {
			n.redisProxy.setState(linkUp)
			n.redisProxy.cutConnections()
		}
	}
}

// callsPerCase is the number of calls to a changed app, at both processes in turn.
const callsPerCase = 60

// changeCase is an app, a change of it, and how many of the calls that follow must pass.
type changeCase struct {
	name         string
	app          string
	wantPassed   int
	roles        []string                      // of the calling token; default admin
	usesAPIKey   bool                          // calls use an API key instead of a token
	preparations []adminRequest                // before Redis is disconnected
	requests     []adminRequest                // the change; {key} is the id of the API key
	secrets      map[string]string             // of the app
	isPassed     func(c *cluster, t task) bool // whether an answered call counts as passed; nil = always

	token string
	keyID string // id of the API key
}

// adminRequest is a request of the operator.
type adminRequest struct {
	method, path string
	body         any
}

func changeCases(prefix string) []changeCase {
	at := func(name string) string { return "/admin/apps/" + prefix + "-" + name }
	// The budget counts what was used before it was created: one call at each of two processes.
	budget := map[string]any{"name": "cap", "unit": "calls", "amount": 17, "window": "total", "hard": true}
	rate := map[string]any{"rate": []any{map[string]any{"per": "app", "type": "count", "window": "month", "limit": 15}}}
	models := func(allowed ...string) map[string]any {
		return map[string]any{"name": prefix + "-plan", "currency": "USD", "allowed_models": append([]string{}, allowed...)}
	}
	price := map[string]any{
		"version": prefix, "currency": "USD", "effective_from": "2020-01-01T00:00:00Z",
		"items": []any{map[string]any{"kind": "charge", "meter": "model_calls", "model": "*", "per": 1, "amount": 7}},
	}
	role := map[string]any{"name": "clerk", "scopes": []string{"agents:call"}}
	return []changeCase{
		{name: "a budget is made", app: prefix + "-budget", wantPassed: 15, requests: []adminRequest{{http.MethodPost, at("budget") + "/budgets", budget}}},
		{
			name: "a price book is made", app: prefix + "-price", wantPassed: callsPerCase, requests: []adminRequest{{http.MethodPost, "/admin/prices", price}},
			isPassed: func(c *cluster, t task) bool {
				return len(c.querySQL("SELECT 1 FROM usage WHERE task = $1 AND kind = 'model' AND charge = 7 AND price_version = $2", t.TaskID, prefix)) == 1
			},
		},
		{
			name: "a plan loses a model", app: prefix + "-plan",
			preparations: []adminRequest{
				{http.MethodPost, "/admin/plans", models()},
				{http.MethodPatch, at("plan"), map[string]any{"plan": prefix + "-plan"}},
			},
			requests: []adminRequest{{http.MethodPut, "/admin/plans/" + prefix + "-plan", models("other/*")}},
		},
		{name: "a limit is set", app: prefix + "-limit", wantPassed: 15, requests: []adminRequest{{http.MethodPatch, at("limit"), map[string]any{"limits": rate}}}},
		{
			name: "a secret is replaced", app: prefix + "-secret", wantPassed: callsPerCase, secrets: map[string]string{"GREETING": "before"},
			requests: []adminRequest{{http.MethodPut, at("secret") + "/secrets/GREETING", map[string]any{"value": "after"}}},
			isPassed: func(_ *cluster, t task) bool { return strings.HasSuffix(t.lastText(), "after") },
		},
		{
			name: "a role loses its scope", app: prefix + "-role", roles: []string{"clerk"},
			preparations: []adminRequest{{http.MethodPost, at("role") + "/roles", role}},
			requests:     []adminRequest{{http.MethodPut, at("role") + "/roles/clerk", map[string]any{"scopes": []string{"tasks:read"}}}},
		},
		{name: "a key is deleted", app: prefix + "-key", usesAPIKey: true, requests: []adminRequest{{http.MethodDelete, at("key") + "/keys/{key}", nil}}},
		{name: "tokens are revoked", app: prefix + "-token", requests: []adminRequest{{http.MethodPost, at("token") + "/tokens:revoke", map[string]any{}}}},
		{name: "the app is suspended", app: prefix + "-suspend", requests: []adminRequest{{http.MethodPost, at("suspend") + ":suspend", map[string]any{}}}},
		{name: "the app is deleted", app: prefix + "-delete", requests: []adminRequest{{http.MethodDelete, at("delete"), nil}}},
	}
}

// prepareCase creates the app of a case and what the case changes, and has both processes serve a call of it.
func (c *cluster) prepareCase(k *changeCase) {
	c.Helper()
	config := "llms: {m: {provider: scripted, script: [{then: [{say: \"{{text}} SECRET\"}]}]}}\nagents: {assistant: {llm: m}}\n"
	if k.secrets != nil {
		config = strings.ReplaceAll(config, "SECRET", "${GREETING}")
	}
	body := map[string]any{"name": k.app, "config": config, "secrets": k.secrets}
	admin := c.nodes[0].adminClient()
	c.requireNoError(admin.requestJSON(c.Context(), http.MethodPost, "/admin/apps", body, nil))
	for _, o := range k.preparations {
		c.requireNoError(admin.requestJSON(c.Context(), o.method, o.path, o.body, nil))
	}
	var made struct {
		ID          string
		Key         string
		AccessToken string `json:"access_token"`
	}
	if k.usesAPIKey {
		c.requireNoError(admin.requestJSON(c.Context(), http.MethodPost, "/admin/apps/"+k.app+"/keys", map[string]any{"name": "test", "roles": []string{"caller"}}, &made))
		k.keyID, k.token = made.ID, made.Key
	} else {
		roles := k.roles
		if roles == nil {
			roles = []string{"admin"}
		}
		c.requireNoError(admin.requestJSON(c.Context(), http.MethodPost, "/admin/apps/"+k.app+"/tokens", map[string]any{"sub": "ana", "roles": roles}, &made))
		k.token = made.AccessToken
	}
	for i := range c.nodes {
		c.waitWithin(setupTimeout, fmt.Sprintf("%s: a call is answered at process %d before the change", k.name, i), func() bool {
			got, err := c.newCaller(k, i).sendMessage(c.Context(), message{text: "hello"})
			return err == nil && got.Status.State == "completed"
		})
	}
}

// applyChange makes the change of a case at the first process.
func (c *cluster) applyChange(k *changeCase) {
	c.Helper()
	for _, o := range k.requests {
		c.requireNoError(c.nodes[0].adminClient().requestJSON(c.Context(), o.method, strings.ReplaceAll(o.path, "{key}", k.keyID), o.body, nil))
	}
}

// countPassed makes the calls of a case and returns how many passed.
func (c *cluster) countPassed(k *changeCase) int {
	c.Helper()
	var passed atomic.Int64
	runConcurrently(callsPerCase, func(i int) {
		got, err := c.newCaller(k, i).sendMessage(c.Context(), message{text: fmt.Sprintf("hello %d", i)})
		if err == nil && got.Status.State == "completed" && (k.isPassed == nil || k.isPassed(c, got)) {
			passed.Add(1)
		}
	})
	return int(passed.Load())
}

func (c *cluster) newCaller(k *changeCase, i int) *client {
	return &client{baseURL: c.nodes[i%len(c.nodes)].baseURL, token: k.token, http: c.client}
}
