package main

// beyondRoutes are what the surfaces for clients of other protocols than A2A answer: how a stranger would try a route, and what a
// caller must have for it.
func beyondRoutes() {
	row := func(key string, n need, walks ...trespass) { routeNeeds[key], routeWalks[key] = n, walks }

	chat := func(agent string) func(x minted) any {
		return func(x minted) any {
			return map[string]any{"model": x.on(agent), "messages": []any{map[string]any{"role": "user", "content": "hello"}}}
		}
	}
	row("POST /openai/v1/chat/completions",
		need{path: "/apps/acme/openai/v1/chat/completions", body: chat("assistant")(nobody), any: orOfAssistant()},
		trespass{path: "/openai/v1/chat/completions", body: chat("{agent}")}, trespass{path: "/apps/{app}/openai/v1/chat/completions", body: chat("assistant")})
	row("GET /openai/v1/models", need{path: "/apps/acme/openai/v1/models", who: looking}, trespass{path: "/apps/{app}/openai/v1/models"})
	row("GET /openai/v1/models/{agent}", need{path: "/apps/acme/openai/v1/models/assistant", who: looking},
		trespass{path: "/openai/v1/models/{agent}"}, trespass{path: "/apps/{app}/openai/v1/models/{agent}"})
}

func init() { beyondRoutes() }
