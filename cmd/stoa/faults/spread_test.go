package faults_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestF7Changes cuts Redis off and then has one process change what apps may do: budgets, prices, plans, limits, secrets, roles,
// keys, tokens, their state. Two seconds later each change holds at both processes, to the call.
func TestF7Changes(t *testing.T) {
	t.Parallel()
	states := []struct {
		name  string
		state wire
	}{{"refused", refused}, {"half-open", halfOpen}, {"black-hole", blackHole}}
	if !full {
		leftOut(t, "Redis that swallows; make faults does it")
		states = states[:1]
	}
	c := up(t, setup{nodes: 2, redis: true, args: unhurried})
	for _, x := range states {
		cases := changes(x.name)
		for i := range cases {
			c.prepare(&cases[i])
		}
		for _, n := range c.nodes {
			n.redis.set(x.state)
			if x.state.refuse {
				n.redis.cut()
			}
		}
		for i := range cases {
			c.change(&cases[i])
		}
		wait(c.Context(), 2*time.Second)
		for i := range cases {
			k := &cases[i]
			if got := c.passing(k); got != k.pass {
				t.Errorf("%s: %s: %d of %d calls passed two seconds after the change, want %d", x.name, k.name, got, attempts, k.pass)
			} else {
				say(t, "%s: %s: %d of %d calls passed", x.name, k.name, got, attempts)
			}
		}
		for _, n := range c.nodes {
			n.redis.set(whole)
			n.redis.cut()
		}
	}
}

// attempts is how many calls a changed app is asked for, at both processes in turn.
const attempts = 60

// changed is an app of which one process changes something, and how many of the calls that follow are to pass.
type changed struct {
	name    string
	app     string
	pass    int
	roles   []string                      // of the token that calls; admin
	key     bool                          // an API key calls, in place of a token
	setup   []order                       // before Redis is cut off
	orders  []order                       // the change; {key} is the id of the API key
	secrets map[string]string             // of the app
	counts  func(c *cluster, t task) bool // whether an answered call counts as passed; nil = it does

	token string
	id    string // of the key
}

// order is a request of the operator.
type order struct {
	method, path string
	body         any
}

func changes(prefix string) []changed {
	at := func(name string) string { return "/admin/apps/" + prefix + "-" + name }
	// The budget counts what was used before it was made: a call at each of two processes.
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
	return []changed{
		{name: "a budget is made", app: prefix + "-budget", pass: 15, orders: []order{{http.MethodPost, at("budget") + "/budgets", budget}}},
		{
			name: "a price book is made", app: prefix + "-price", pass: attempts, orders: []order{{http.MethodPost, "/admin/prices", price}},
			counts: func(c *cluster, t task) bool {
				return len(c.sql("SELECT 1 FROM usage WHERE task = $1 AND kind = 'model' AND charge = 7 AND price_version = $2", t.TaskID, prefix)) == 1
			},
		},
		{
			name: "a plan loses a model", app: prefix + "-plan",
			setup: []order{
				{http.MethodPost, "/admin/plans", models()},
				{http.MethodPut, at("plan"), map[string]any{"plan": prefix + "-plan"}},
			},
			orders: []order{{http.MethodPut, "/admin/plans/" + prefix + "-plan", models("other/*")}},
		},
		{name: "a limit is set", app: prefix + "-limit", pass: 15, orders: []order{{http.MethodPut, at("limit"), map[string]any{"limits": rate}}}},
		{
			name: "a secret is replaced", app: prefix + "-secret", pass: attempts, secrets: map[string]string{"GREETING": "before"},
			orders: []order{{http.MethodPut, at("secret") + "/secrets/GREETING", map[string]any{"value": "after"}}},
			counts: func(_ *cluster, t task) bool { return strings.HasSuffix(t.text(), "after") },
		},
		{
			name: "a role loses its scope", app: prefix + "-role", roles: []string{"clerk"},
			setup:  []order{{http.MethodPost, at("role") + "/roles", role}},
			orders: []order{{http.MethodPut, at("role") + "/roles/clerk", map[string]any{"scopes": []string{"tasks:read"}}}},
		},
		{name: "a key is deleted", app: prefix + "-key", key: true, orders: []order{{http.MethodDelete, at("key") + "/keys/{key}", nil}}},
		{name: "tokens are revoked", app: prefix + "-token", orders: []order{{http.MethodPost, at("token") + "/tokens:revoke", map[string]any{}}}},
		{name: "the app is suspended", app: prefix + "-suspend", orders: []order{{http.MethodPost, at("suspend") + ":suspend", map[string]any{}}}},
		{name: "the app is deleted", app: prefix + "-delete", orders: []order{{http.MethodDelete, at("delete"), nil}}},
	}
}

// prepare makes the app of a case, whatever is to be changed, and has both processes serve a call of it.
func (c *cluster) prepare(k *changed) {
	c.Helper()
	config := "llms: {m: {provider: scripted, script: [{then: [{say: \"{{text}} SECRET\"}]}]}}\nagents: {assistant: {llm: m}}\n"
	if k.secrets != nil {
		config = strings.ReplaceAll(config, "SECRET", "${GREETING}")
	}
	body := map[string]any{"name": k.app, "config": config, "secrets": k.secrets}
	admin := c.nodes[0].admin()
	c.must(admin.ask(c.Context(), http.MethodPost, "/admin/apps", body, nil))
	for _, o := range k.setup {
		c.must(admin.ask(c.Context(), o.method, o.path, o.body, nil))
	}
	var made struct {
		ID          string
		Key         string
		AccessToken string `json:"access_token"`
	}
	if k.key {
		c.must(admin.ask(c.Context(), http.MethodPost, "/admin/apps/"+k.app+"/keys", map[string]any{"name": "test", "roles": []string{"caller"}}, &made))
		k.id, k.token = made.ID, made.Key
	} else {
		roles := k.roles
		if roles == nil {
			roles = []string{"admin"}
		}
		c.must(admin.ask(c.Context(), http.MethodPost, "/admin/apps/"+k.app+"/tokens", map[string]any{"sub": "ana", "roles": roles}, &made))
		k.token = made.AccessToken
	}
	for i := range c.nodes {
		c.within(5*time.Second, fmt.Sprintf("%s: a call is answered at process %d before the change", k.name, i), func() bool {
			got, err := c.caller(k, i).send(c.Context(), message{text: "hello"})
			return err == nil && got.Status.State == "completed"
		})
	}
}

// change carries out the change of a case at the first process.
func (c *cluster) change(k *changed) {
	c.Helper()
	for _, o := range k.orders {
		c.must(c.nodes[0].admin().ask(c.Context(), o.method, strings.ReplaceAll(o.path, "{key}", k.id), o.body, nil))
	}
}

// passing makes the calls of a case and returns how many of them passed.
func (c *cluster) passing(k *changed) int {
	c.Helper()
	var passed atomic.Int64
	together(attempts, func(i int) {
		got, err := c.caller(k, i).send(c.Context(), message{text: fmt.Sprintf("hello %d", i)})
		if err == nil && got.Status.State == "completed" && (k.counts == nil || k.counts(c, got)) {
			passed.Add(1)
		}
	})
	return int(passed.Load())
}

func (c *cluster) caller(k *changed, i int) *client {
	return &client{base: c.nodes[i%len(c.nodes)].base, token: k.token, http: c.client}
}
