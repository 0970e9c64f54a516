package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"stoa/agentsvc/surface/a2a"
)

// officialRoutes are what the official A2A surface answers over REST, of each version: how a stranger would try a route, and
// what a caller must have for it.
func officialRoutes() {
	const asAgent, elsewhere, inApp = "/a2a/assistant", "/a2a/{agent}", "/apps/{app}/a2a/assistant"
	row := func(method, path string, n need, walks ...trespass) {
		key := method + " /a2a/{agent}" + path
		n.path = strings.NewReplacer("{task}", "nosuch", "{config}", "nosuch").Replace("/apps/acme/a2a/assistant" + path)
		routeNeeds[key] = n
		for _, walk := range walks {
			bases := []string{asAgent, elsewhere, inApp}
			if !strings.HasPrefix(path, "/v0.3") && !strings.HasPrefix(path, "/.well-known") {
				bases = append(bases, asAgent+"/{app}", asAgent+"/{app}/assistant")
			}
			for _, base := range bases {
				of := walk
				of.path = base + path + walk.path
				routeWalks[key] = append(routeWalks[key], of)
			}
		}
	}
	own := func(wide ...string) need { return need{any: orOfAssistant(wide...)} }
	row("GET", "/.well-known/agent-card.json", need{who: looking}, trespass{})
	for _, v := range []struct {
		base, card string
		say        func(x minted, part any, more ...any) any
	}{{"", "/extendedAgentCard", official}, {"/v0.3/v1", "/card", officialProto}} {
		var sends []trespass
		for _, said := range officialSaid(v.say) {
			sends = append(sends, trespass{body: said})
		}
		sending, deciding := own(), need{any: []string{"tasks:approve"}}
		sending.body, deciding.body = v.say(nobody, map[string]any{"text": "hello"}), officialSaid(v.say)[3](nobody)
		row("POST", v.base+"/message:send", sending, sends...)
		row("POST", v.base+"/message:stream", deciding, sends...)
		row("GET", v.base+"/tasks", own("tasks:read"), trespass{path: "?contextId={context}"}, trespass{path: "?pageToken={cursor}"})
		for method, action := range map[string]string{"POST": ":cancel", "GET": ":subscribe"} {
			wide := map[string]string{":cancel": "tasks:cancel", ":subscribe": "tasks:read"}[action]
			row(method, v.base+"/tasks/{task}"+action, own(wide), trespass{}, trespass{id: "1"})
		}
		row("POST", v.base+"/tasks/{task}:subscribe", own("tasks:read"), trespass{}, trespass{id: "1"})
		row("GET", v.base+"/tasks/{task}", own("tasks:read"), trespass{})
		row("GET", v.base+v.card, own("agents:read"), trespass{})
		for _, push := range []struct{ method, path string }{{"POST", ""}, {"GET", ""}, {"GET", "/{config}"}, {"DELETE", "/{config}"}} {
			of := trespass{}
			if push.method == "POST" {
				of.body = pushed
			}
			row(push.method, v.base+"/tasks/{task}/pushNotificationConfigs"+push.path, own(), of)
		}
	}
	for _, path := range []string{"/", "/stream", "/a2a/{agent}"} {
		routeWalks["POST "+path], routeNeeds["POST "+path] = nil, need{who: byMethod} // walkA2A and knockA2A
	}
}

func init() { officialRoutes() }

// official is the params of a message as both versions of the official protocol read it, whose answer is waited for.
func official(_ minted, part any, more ...any) any {
	m := map[string]any{"messageId": "official", "role": "user", "parts": []any{part}}
	for i := 0; i+1 < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return map[string]any{"message": m}
}

// officialProto is the same in the words of Protocol Buffers, as version 0.3 has it over REST.
func officialProto(x minted, part any, more ...any) any {
	if p, ok := part.(map[string]any); ok && p["data"] != nil {
		part = map[string]any{"data": map[string]any{"data": p["data"]}}
	}
	return official(x, part, more...)
}

// officialSaid are messages that name somebody else's ids.
func officialSaid(say func(minted, any, ...any) any) []func(x minted) any {
	text := func(s string) any { return map[string]any{"text": s} }
	return []func(x minted) any{
		func(x minted) any { return say(x, text("mine now"), "taskId", x.task) },
		func(x minted) any { return say(x, text("recall"), "contextId", x.context) },
		func(x minted) any { return say(x, text("hello"), "messageId", x.message, "contextId", x.context) },
		func(x minted) any { return say(x, map[string]any{"data": ruling(x)}, "taskId", x.held) },
		func(x minted) any {
			return say(x, map[string]any{"data": secretFor("locked", "mine now")}, "taskId", x.wanting)
		},
		func(x minted) any {
			params, _ := say(x, text("hello")).(map[string]any)
			params["tenant"] = x.app
			return params
		},
	}
}

// officialParams says for each kind of method what a stranger would ask for.
func officialParams(method string) []func(x minted) any {
	switch {
	case strings.HasPrefix(method, "Send"), strings.HasPrefix(method, "message/"):
		return officialSaid(official)
	case method == "ListTasks", method == "tasks/list":
		return []func(x minted) any{
			func(x minted) any { return map[string]any{"contextId": x.context} }, func(x minted) any { return map[string]any{"pageToken": x.cursor} },
		}
	case strings.HasSuffix(method, "Card"):
		return []func(x minted) any{func(x minted) any { return map[string]any{"tenant": x.app} }}
	case strings.Contains(method, "ushNotification"):
		return []func(x minted) any{pushed}
	}
	return []func(x minted) any{func(x minted) any { return map[string]any{"id": x.task} }}
}

// pushed are the params of a push notification config in both versions, of one that there is.
func pushed(x minted) any {
	config := map[string]any{"id": x.task, "url": "https://thief.invalid"}
	return map[string]any{
		"taskId": x.task, "id": x.task, "pushNotificationConfigId": x.task, "url": config["url"], "pushNotificationConfig": config,
		"config": map[string]any{"pushNotificationConfig": config},
	}
}

// walkA2A tries the ids with every JSON-RPC method of the official protocol, at each of its places.
func (h *testHouse) walkA2A(t *testing.T, token string, x minted) {
	t.Helper()
	for _, method := range a2a.Methods() {
		for _, params := range officialParams(method) {
			for _, path := range []string{"/a2a/assistant", "/a2a/{agent}", "/apps/{app}/a2a/assistant", "/?agent=assistant", "/stream?agent={agent}"} {
				h.compare(t, token, http.MethodPost, trespass{path: path, body: func(x minted) any { return rpc(method, params(x)) }}, x)
			}
			h.compare(t, token, http.MethodPost, trespass{path: "/a2a/assistant", id: "1", body: func(x minted) any { return rpc(method, params(x)) }}, x)
		}
	}
}

// knockA2A has every caller use every JSON-RPC method of the official protocol.
func (h *testHouse) knockA2A(t *testing.T, callers []matrixCaller) {
	t.Helper()
	for _, method := range a2a.Methods() {
		params := officialParams(method)
		n := need{any: orOfAssistant("tasks:read")}
		switch {
		case strings.HasPrefix(method, "Send"), strings.HasPrefix(method, "message/"):
			n.any = []string{"tasks:approve"}
			params = params[3:4]
		case strings.HasSuffix(method, "ancelTask"), method == "tasks/cancel":
			n.any = orOfAssistant("tasks:cancel")
		case strings.HasSuffix(method, "Card"):
			n.any = orOfAssistant("agents:read")
			params = []func(minted) any{emptyBody}
		case strings.Contains(method, "ushNotification"):
			n.any = orOfAssistant()
		}
		for _, c := range callers {
			h.knock(t, method, http.MethodPost, "/apps/acme/a2a/assistant", rpc(method, params[0](nobody)), n, c)
		}
	}
	hello := official(nobody, map[string]any{"text": "hello"})
	for _, c := range callers {
		h.knock(t, "SendMessage", http.MethodPost, "/apps/acme/?agent=assistant", rpc("SendMessage", hello), need{any: orOfAssistant()}, c)
	}
}

// subscribe follows a task as official clients do, and returns what there was to read when the task has ended.
func (p *process) subscribe(t *testing.T, token, id string) (rest func() string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(p.request(t, http.MethodPost, "/a2a/assistant", token, rpc("SubscribeToTask", map[string]any{"id": id})))
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
