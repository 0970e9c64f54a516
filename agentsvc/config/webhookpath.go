package config

import (
	"regexp"
	"strings"
)

// RoutePatterns are the paths of the server's own routes, which no webhook can have. Those below /admin and /metrics,
// which are the operator's, and those of webhooks are not among them. A test of package openapi compares them with the
// table of routes.
var RoutePatterns = []string{
	"/",
	"/.well-known/agent-card.json", "/.well-known/agent.json", "/.well-known/card-keys.json", "/.well-known/jwks.json",
	"/a2a/{agent}", "/a2a/{agent}/", "/a2a/{agent}/.well-known/agent-card.json", "/a2a/{agent}/.well-known/agent.json", "/a2a/{agent}/extendedAgentCard",
	"/a2a/{agent}/message:send", "/a2a/{agent}/message:stream", "/a2a/{agent}/tasks", "/a2a/{agent}/tasks/{task}",
	"/a2a/{agent}/tasks/{task}/pushNotificationConfigs", "/a2a/{agent}/tasks/{task}/pushNotificationConfigs/{config}",
	"/a2a/{agent}/tasks/{task}:cancel", "/a2a/{agent}/tasks/{task}:subscribe", "/a2a/{agent}/v0.3/v1/card",
	"/a2a/{agent}/v0.3/v1/message:send", "/a2a/{agent}/v0.3/v1/message:stream", "/a2a/{agent}/v0.3/v1/tasks",
	"/a2a/{agent}/v0.3/v1/tasks/{task}", "/a2a/{agent}/v0.3/v1/tasks/{task}/pushNotificationConfigs",
	"/a2a/{agent}/v0.3/v1/tasks/{task}/pushNotificationConfigs/{config}", "/a2a/{agent}/v0.3/v1/tasks/{task}:cancel",
	"/a2a/{agent}/v0.3/v1/tasks/{task}:subscribe", "/a2a/{agent}/{tenant}/extendedAgentCard",
	"/a2a/{agent}/{tenant}/message:send", "/a2a/{agent}/{tenant}/message:stream", "/a2a/{agent}/{tenant}/tasks",
	"/a2a/{agent}/{tenant}/tasks/{task}", "/a2a/{agent}/{tenant}/tasks/{task}/pushNotificationConfigs",
	"/a2a/{agent}/{tenant}/tasks/{task}/pushNotificationConfigs/{config}", "/a2a/{agent}/{tenant}/tasks/{task}:cancel",
	"/a2a/{agent}/{tenant}/tasks/{task}:subscribe", "/a2a/{agent}/{tenant}/{of}/extendedAgentCard",
	"/a2a/{agent}/{tenant}/{of}/message:send", "/a2a/{agent}/{tenant}/{of}/message:stream",
	"/a2a/{agent}/{tenant}/{of}/tasks", "/a2a/{agent}/{tenant}/{of}/tasks/{task}",
	"/a2a/{agent}/{tenant}/{of}/tasks/{task}/pushNotificationConfigs",
	"/a2a/{agent}/{tenant}/{of}/tasks/{task}/pushNotificationConfigs/{config}",
	"/a2a/{agent}/{tenant}/{of}/tasks/{task}:cancel", "/a2a/{agent}/{tenant}/{of}/tasks/{task}:subscribe",
	"/agents", "/agents/{agent}", "/agents/{agent}/.well-known/agent-card.json",
	"/api/config", "/api/openapi.json", "/api/schema", "/api/tasks/{task}/toolCalls/{call}/cancel",
	"/billing/budgets", "/billing/budgets/{budget}", "/billing/invoices", "/billing/invoices/{invoice}", "/billing/usage",
	"/caller",
	"/config", "/config/revisions", "/config/revisions/{revision}", "/config/revisions/{revision}:restore",
	"/credentials", "/credentials/{tool}",
	"/health",
	"/mcp/{agent}",
	"/memories",
	"/openai/v1/chat/completions", "/openai/v1/models", "/openai/v1/models/{agent}",
	"/openai/v1/responses", "/openai/v1/responses/{response}", "/openai/v1/responses/{response}/cancel",
	"/ready",
	"/secrets", "/secrets/{name}",
	"/stream",
	"/tasks", "/tasks/{task}", "/tasks/{task}/approve", "/tasks/{task}/checkpoints", "/tasks/{task}/checkpoints/{checkpoint}:restore",
	"/tasks/{task}/cancel", "/tasks/{task}/log", "/tasks/{task}/notifications", "/tasks/{task}/reject",
	"/triggers", "/triggers/{agent}/starts", "/triggers/{agent}:run",
	"/v1/agents", "/v1/agents/{agent}/.well-known/agent-card.json", "/v1/agents/{agent}/message:send",
	"/v1/agents/{agent}/message:stream", "/v1/agents/{agent}/stream", "/v1/agents/{agent}/tasks",
	"/v1/agents/{agent}/tasks/{task}", "/v1/agents/{agent}/tasks/{task}:cancel",
	"/v1/agents/{agent}/tasks/{task}:subscribe",
	"/v1/document-stores", "/v1/document-stores/{store}/documents", "/v1/document-stores/{store}/documents/{document}",
	"/v1/document-stores/{store}/documents/{document}/content", "/v1/document-stores/{store}:reindex",
	"/v1/document-stores/{store}:search", "/v1/message:send",
}

// routeForms are regular expressions of RoutePatterns. A parameter stands for one part of a path.
var routeForms = func() (forms []*regexp.Regexp) {
	parameter := regexp.MustCompile(`\\\{\w+\\\}`)
	for _, p := range RoutePatterns {
		forms = append(forms, regexp.MustCompile("^"+parameter.ReplaceAllString(regexp.QuoteMeta(p), "[^/]+")+"$"))
	}
	return forms
}()

// findRoute returns the pattern of the server's own route at a path, "" if a webhook can have the path.
func findRoute(path string) string {
	for _, root := range []string{"/admin", "/apps", "/metrics"} {
		if path == root || strings.HasPrefix(path, root+"/") {
			return root
		}
	}
	for i, form := range routeForms {
		if form.MatchString(path) {
			return RoutePatterns[i]
		}
	}
	return ""
}

// maxWebhookPath bounds the path of a webhook, in bytes.
const maxWebhookPath = 255

// webhookPathForm is the form of a webhook's path. What a URL would have to escape or gives a meaning to is left out.
var webhookPathForm = regexp.MustCompile(`^(/[^/?#%\\{}\s[:cntrl:]]+)+/?$`)

// isWebhookPath reports whether a path has the form of a webhook's.
func isWebhookPath(path string) bool {
	return len(path) <= maxWebhookPath && webhookPathForm.MatchString(path) && !strings.Contains(path+"/", "/./") && !strings.Contains(path+"/", "/../")
}
