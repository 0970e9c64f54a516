package stoa

import (
	"fmt"
	"time"

	"stoa/bench/model"
)

// object is a part of a tenant's config.
type object = map[string]any

// Plain is the smallest tenant that answers: one agent, "assistant", on the scripted model.
func Plain(name string) App {
	return App{Name: name, Config: object{
		"version": "2",
		"llms":    object{"demo": object{"provider": "scripted"}},
		"agents":  object{"assistant": object{"llm": "demo", "instruction": "Answer."}},
	}}
}

// Furnished has three agents and five tools, all on the scripted model.
func Furnished(name string) App {
	tools := object{}
	for i, handler := range []string{"current_time", "calculator", "http_request", "current_time", "calculator"} {
		tools[fmt.Sprintf("tool%d", i+1)] = object{"type": "function", "handler": handler, "description": "One of five."}
	}
	use := []string{"tool1", "tool2", "tool3", "tool4", "tool5"}
	agents := object{}
	for _, agent := range []string{"assistant", "clerk", "scout"} {
		agents[agent] = object{"llm": "demo", "description": "One of three.", "instruction": "Answer with care.", "tools": use}
	}
	return App{Name: name, Config: object{
		"version": "2",
		"llms":    object{"demo": object{"provider": "scripted"}},
		"tools":   tools,
		"agents":  agents,
	}}
}

// Streaming has the agents "tokens-N" for each n, on the fixed-answer model server at modelURL with that pace, and the
// agent "stamp" on its model of that name.
func Streaming(name, modelURL string, pace time.Duration, ns ...int) App {
	llms, agents := object{}, object{}
	add := func(name, model string) {
		llms[name] = object{"provider": "openai", "model": model, "base_url": modelURL + "/v1", "api_key": "${MODEL_KEY}"}
		agents[name] = object{"llm": name, "instruction": "Answer."}
	}
	for _, n := range ns {
		add(fmt.Sprintf("tokens-%d", n), model.Name(n, pace))
	}
	add(model.Stamp, model.Stamp)
	return App{
		Name:    name,
		Config:  object{"version": "2", "llms": llms, "agents": agents},
		Secrets: map[string]string{"MODEL_KEY": "not-checked"},
		Grants:  []string{"private_network"},
	}
}
