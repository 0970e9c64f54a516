package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"stoa/agentsvc/surface/a2a"
)

// addA2ARoutes adds the REST routes of the official A2A surface, of each version, to the isolation and access tables.
func addA2ARoutes() {
	const asAgent, elsewhere, inApp = "/a2a/assistant", "/a2a/{agent}", "/apps/{app}/a2a/assistant"
	row := func(method, path string, n accessRule, probes ...isolationProbe) {
		key := method + " /a2a/{agent}" + path
		n.path = strings.NewReplacer("{task}", "nosuch", "{config}", "nosuch").Replace("/apps/acme/a2a/assistant" + path)
		routeAccess[key] = n
		for _, probe := range probes {
			bases := []string{asAgent, elsewhere, inApp}
			if !strings.HasPrefix(path, "/v0.3") && !strings.HasPrefix(path, "/.well-known") {
				bases = append(bases, asAgent+"/{app}", asAgent+"/{app}/assistant")
			}
			for _, base := range bases {
				of := probe
				of.path = base + path + probe.path
				routeProbes[key] = append(routeProbes[key], of)
			}
		}
	}
	specific := func(wide ...string) accessRule { return accessRule{anyOf: assistantScopes(wide...)} }
	row("GET", "/.well-known/agent-card.json", accessRule{access: discoveryOnly}, isolationProbe{})
	for _, v := range []struct {
		base, card string
		say        func(x appIDs, part any, more ...any) any
	}{{"", "/extendedAgentCard", newA2AParams}, {"/v0.3/v1", "/card", newA2AProtoParams}} {
		var sends []isolationProbe
		for _, written := range foreignA2AMessages(v.say) {
			sends = append(sends, isolationProbe{body: written})
		}
		sending, deciding := specific(), accessRule{anyOf: []string{"tasks:approve"}}
		sending.body, deciding.body = v.say(unknownIDs, map[string]any{"text": "hello"}), foreignA2AMessages(v.say)[3](unknownIDs)
		row("POST", v.base+"/message:send", sending, sends...)
		row("POST", v.base+"/message:stream", deciding, sends...)
		row("GET", v.base+"/tasks", specific("tasks:read"), isolationProbe{path: "?contextId={context}"}, isolationProbe{path: "?pageToken={cursor}"})
		for method, action := range map[string]string{"POST": ":cancel", "GET": ":subscribe"} {
			wide := map[string]string{":cancel": "tasks:cancel", ":subscribe": "tasks:read"}[action]
			row(method, v.base+"/tasks/{task}"+action, specific(wide), isolationProbe{}, isolationProbe{lastEventID: "1"})
		}
		row("POST", v.base+"/tasks/{task}:subscribe", specific("tasks:read"), isolationProbe{}, isolationProbe{lastEventID: "1"})
		row("GET", v.base+"/tasks/{task}", specific("tasks:read"), isolationProbe{})
		row("GET", v.base+v.card, specific("agents:read"), isolationProbe{})
		for _, push := range []struct{ method, path string }{{"POST", ""}, {"GET", ""}, {"GET", "/{config}"}, {"DELETE", "/{config}"}} {
			of := isolationProbe{}
			if push.method == "POST" {
				of.body = newPushConfigParams
			}
			row(push.method, v.base+"/tasks/{task}/pushNotificationConfigs"+push.path, specific(), of)
		}
	}
	for _, path := range []string{"/", "/stream", "/a2a/{agent}"} {
		routeProbes["POST "+path], routeAccess["POST "+path] = nil, accessRule{access: byMethod} // probeA2A and checkA2AAccess
	}
}

func init() { addA2ARoutes() }

// newA2AParams returns the params of a blocking message that both versions of the A2A protocol accept.
func newA2AParams(_ appIDs, part any, more ...any) any {
	if content, ok := part.(map[string]any); ok {
		for kind := range content {
			part = map[string]any{"kind": kind, kind: content[kind]}
		}
	}
	m := map[string]any{"messageId": "official", "role": "user", "parts": []any{part}}
	for i := 0; i+1 < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return map[string]any{"message": m}
}

// newA2AProtoParams is newA2AParams in the JSON encoding of Protocol Buffers, as version 0.3 has it over REST.
func newA2AProtoParams(x appIDs, part any, more ...any) any {
	if p, ok := part.(map[string]any); ok && p["data"] != nil {
		part = map[string]any{"data": map[string]any{"data": p["data"]}}
	}
	return newA2AParams(x, part, more...)
}

// foreignA2AMessages returns messages that contain ids of another tenant or user.
func foreignA2AMessages(send func(appIDs, any, ...any) any) []func(x appIDs) any {
	text := func(s string) any { return map[string]any{"text": s} }
	return []func(x appIDs) any{
		func(x appIDs) any { return send(x, text("mine now"), "taskId", x.task) },
		func(x appIDs) any { return send(x, text("recall"), "contextId", x.context) },
		func(x appIDs) any { return send(x, text("hello"), "messageId", x.message, "contextId", x.context) },
		func(x appIDs) any {
			return send(x, map[string]any{"data": newDecisionData(x)}, "taskId", x.approvalTask)
		},
		func(x appIDs) any {
			return send(x, map[string]any{"data": newCredentialData("locked", "mine now")}, "taskId", x.credentialTask)
		},
		func(x appIDs) any {
			params, _ := send(x, text("hello")).(map[string]any)
			params["tenant"] = x.app
			return params
		},
	}
}

// foreignA2AParams returns params with foreign ids for a method.
func foreignA2AParams(method string) []func(x appIDs) any {
	switch {
	case strings.HasPrefix(method, "Send"), strings.HasPrefix(method, "message/"):
		return foreignA2AMessages(newA2AParams)
	case method == "ListTasks", method == "tasks/list":
		return []func(x appIDs) any{
			func(x appIDs) any { return map[string]any{"contextId": x.context} }, func(x appIDs) any { return map[string]any{"pageToken": x.cursor} },
		}
	case strings.HasSuffix(method, "Card"):
		return []func(x appIDs) any{func(x appIDs) any { return map[string]any{"tenant": x.app} }}
	case strings.Contains(method, "ushNotification"):
		return []func(x appIDs) any{newPushConfigParams}
	}
	return []func(x appIDs) any{func(x appIDs) any { return map[string]any{"id": x.task} }}
}

// newPushConfigParams returns params that name an existing push notification config, in the form of both versions.
func newPushConfigParams(x appIDs) any {
	config := map[string]any{"id": x.task, "url": "https://thief.invalid"}
	return map[string]any{
		"taskId": x.task, "id": x.task, "pushNotificationConfigId": x.task, "url": config["url"], "pushNotificationConfig": config,
		"config": map[string]any{"pushNotificationConfig": config},
	}
}

// probeA2A tries foreign ids with every JSON-RPC method of the A2A protocol, at each of its endpoints.
func (ts *testServer) probeA2A(t *testing.T, token string, x appIDs) {
	t.Helper()
	for _, method := range a2a.MethodNames() {
		for _, params := range foreignA2AParams(method) {
			for _, path := range []string{"/a2a/assistant", "/a2a/{agent}", "/apps/{app}/a2a/assistant", "/?agent=assistant", "/stream?agent={agent}"} {
				ts.requireIsolated(t, token, http.MethodPost, isolationProbe{path: path, body: func(x appIDs) any { return newRPCCall(method, params(x)) }}, x)
			}
			ts.requireIsolated(t, token, http.MethodPost, isolationProbe{path: "/a2a/assistant", lastEventID: "1", body: func(x appIDs) any { return newRPCCall(method, params(x)) }}, x)
		}
	}
}

// checkA2AAccess lets every caller use every JSON-RPC method of the A2A protocol and compares the result with the
// access table.
func (ts *testServer) checkA2AAccess(t *testing.T, callers []matrixCaller) {
	t.Helper()
	for _, method := range a2a.MethodNames() {
		params := foreignA2AParams(method)
		n := accessRule{anyOf: assistantScopes("tasks:read")}
		switch {
		case strings.HasPrefix(method, "Send"), strings.HasPrefix(method, "message/"):
			n.anyOf = []string{"tasks:approve"}
			params = params[3:4]
		case strings.HasSuffix(method, "ancelTask"), method == "tasks/cancel":
			n.anyOf = assistantScopes("tasks:cancel")
		case strings.HasSuffix(method, "Card"):
			n.anyOf = assistantScopes("agents:read")
			params = []func(appIDs) any{emptyBody}
		case strings.Contains(method, "ushNotification"):
			n.anyOf = assistantScopes()
		}
		for _, c := range callers {
			ts.checkAccess(t, method, http.MethodPost, "/apps/acme/a2a/assistant", newRPCCall(method, params[0](unknownIDs)), n, c)
		}
	}
	hello := newA2AParams(unknownIDs, map[string]any{"text": "hello"})
	for _, c := range callers {
		ts.checkAccess(t, "SendMessage", http.MethodPost, "/apps/acme/?agent=assistant", newRPCCall("SendMessage", hello), accessRule{anyOf: assistantScopes()}, c)
	}
}

// subscribeA2A subscribes to a task as official clients do. The returned function returns what was received when the
// task has ended.
func (p *process) subscribeA2A(t *testing.T, token, id string) (remaining func() string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(p.newRequest(t, http.MethodPost, "/a2a/assistant", token, newRPCCall("SubscribeToTask", map[string]any{"id": id})))
	if err != nil {
		t.Fatal(err)
	}
	return func() string {
		t.Helper()
		defer resp.Body.Close()
		all, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(all)
	}
}
