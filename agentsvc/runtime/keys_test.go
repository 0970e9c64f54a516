package runtime_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/embedder/embeddertest"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/tenancy/db/dbtest"
)

// TestKeysAreSeen checks that every key of the configuration blocks that build an app is used by a test of this
// package, directly or in an example that it runs.
func TestKeysAreSeen(t *testing.T) {
	t.Parallel()
	tests, _ := filepath.Glob("*_test.go")
	examples, _ := filepath.Glob("../../examples/*.yaml")
	var written strings.Builder
	for _, file := range append(tests, examples...) {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		written.Write(src)
	}
	var schema struct {
		Definitions map[string]struct {
			Properties map[string]struct{ Description string }
		}
	}
	if err := json.Unmarshal(config.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	later := []string{ // keys that other packages use, or that are not used yet
		"reply", "document_stores", "include_context", "include_context_limit", "include_context_max_length", "trigger", "notifications",
	}
	for _, block := range []string{
		"LLM", "Thinking", "Rule", "When", "Item", "Call", "Fail", "Artifact", "Usage", "Agent", "Prompt", "Reasoning", "StructuredOutput", "Context", "Skill",
		"Credentials", "Security", "SecurityScheme", "Tool", "Guardrail", "InputGuardrail", "LengthCheck", "InjectionCheck", "Sanitizer", "OutputGuardrail", "PIICheck", "ContentCheck",
		"ToolGuardrail", "AuthorizationCheck", "Memory", "VectorProvider", "Chromem", "Embedder",
	} {
		keys := schema.Definitions[block].Properties
		if len(keys) == 0 {
			t.Errorf("there is no %s", block)
		}
		for key := range keys {
			if !slices.Contains(later, key) && !strings.Contains(written.String(), key+":") {
				t.Errorf("no test has the key %s of %s", key, block)
			}
		}
	}
}

// TestPromptKeys checks what a model receives for each prompt setting.
func TestPromptKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, helper, system, tools string }{
		{"instruction", "{instruction: Do.}", "Do.", ""},
		{"all parts", "{global_instruction: Above., instruction: Do., prompt: {role: Who., guidance: How.}}", "Above.\n\nWho.\n\nDo.\n\nHow.", ""},
		{"system_prompt", "{global_instruction: Above., prompt: {system_prompt: Alone.}}", "Alone.", ""},
		{"system_prompt beside the parts", "{instruction: Do., prompt: {system_prompt: Alone., role: Who., guidance: How.}}", "Alone.", ""},
		{"structured_output", "{structured_output: {name: person, schema: {type: string}}}",
			"Give your final answer as one JSON value, \"person\", that fits this JSON Schema, without any words around it:\n{\"type\":\"string\"}", ""},
		{"reasoning", "{reasoning: {enable_exit_tool: true, enable_escalate_tool: true}}", "", "exit escalate"},
		{"agents", "{agent_tools: [other], sub_agents: [other]}", "", "other transfer_to_other"},
		{"tools", "{tools: [clock, off]}", "", "clock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := startRecordingModel(t)
			src := "llms: {default: {provider: openai, api_key: k, base_url: \"" + h.URL + "\"}}\nagents:\n  other: {}\n  helper: " + c.helper +
				"\ntools: {clock: {type: function, handler: current_time}, off: {type: function, handler: calculator, enabled: false}}\n"
			a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, src, config.Options{}), runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, PrivateNetwork: true},
				slog.New(slog.DiscardHandler))
			runTurn(t, a, newSubmission("hi"))
			system, _, tools := h.lastRequest()
			if system != c.system || strings.Join(tools, " ") != c.tools {
				t.Errorf("the model got %q with the tools %q", system, tools)
			}
		})
	}
}

// TestGlobalInstruction checks that a group's global_instruction reaches its members.
func TestGlobalInstruction(t *testing.T) {
	t.Parallel()
	h := startRecordingModel(t)
	for _, kind := range []string{"sequential", "parallel", "loop"} {
		src := "llms: {default: {provider: openai, api_key: k, base_url: \"" + h.URL + "\"}}\nagents:\n  below: {instruction: Do.}\n" +
			"  helper: {type: " + kind + ", global_instruction: Above., sub_agents: [below]}\n"
		src = strings.Replace(src, "type: loop", "type: loop, max_iterations: 1", 1)
		a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, src, config.Options{}), runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, PrivateNetwork: true},
			slog.New(slog.DiscardHandler))
		runTurn(t, a, newSubmission("hi"))
		if system, _, _ := h.lastRequest(); system != "Above.\n\nDo." {
			t.Errorf("%s: the model got %q", kind, system)
		}
	}
}

// TestReasoningKeys checks how the loop of an agent ends for each reasoning setting.
func TestReasoningKeys(t *testing.T) {
	t.Parallel()
	src := `
llms:
  default:
    provider: scripted
    script:
      - when: {text: "^loop$"}
        then: [{call: {tool: clock}}]
      - when: {tool_result: clock}
        then: [{call: {tool: clock}}]
      - when: {text: "^out$"}
        then: [{say: beside}, {call: {tool: exit}}]
      - when: {text: "^Go on"}
        then: [{call: {tool: exit, arguments: {answer: at last}}}]
      - when: {text: "^back$"}
        then: [{call: {tool: escalate, arguments: {reason: cannot}}}]
      - when: {tool_result: escalate}
        then: [{say: on my own}]
      - when: {text: "^over$"}
        then: [{call: {tool: transfer_to_other}}]
      - when: {tool_result: transfer_to_other}
        then: [{say: "other said: {{result}}"}]
      - then: [{say: "one "}, {say: "two"}]
tools: {clock: {type: function, handler: current_time}}
agents:
  other: {llm: second}
  helper: `
	for _, c := range []struct {
		name, helper, text string
		state              agentsvc.State
		says, shown        string
	}{
		{"max_iterations", "{tools: [clock], reasoning: {max_iterations: 3}}", "loop", agentsvc.Failed, "the agent has used up its model calls without finishing", ""},
		{"enable_exit_tool", "{reasoning: {enable_exit_tool: true}}", "out", agentsvc.Completed, "beside", "beside"},
		{"enable_escalate_tool", "{reasoning: {enable_escalate_tool: true}}", "back", agentsvc.Completed, "cannot", ""},
		{"no_tool_calls", "{reasoning: {enable_exit_tool: true, termination_conditions: [transfer]}}", "hello", agentsvc.Completed, "at last", "one two"},
		{"escalate", "{reasoning: {enable_escalate_tool: true, termination_conditions: [no_tool_calls]}}", "back", agentsvc.Completed, "on my own", "on my own"},
		{"transfer", "{sub_agents: [other]}", "over", agentsvc.Completed, "I am the other.", "I am the other."},
		{"no transfer", "{sub_agents: [other], reasoning: {termination_conditions: [no_tool_calls]}}", "over", agentsvc.Completed,
			"other said: I am the other.", "other said: I am the other."},
		{"streaming", "{streaming: false}", "hello", agentsvc.Completed, "one two", ""},
		{"strict", "{structured_output: {strict: true, schema: {type: integer}}}", "hello", agentsvc.Failed,
			"the model was asked twice, and its answer is not valid JSON: invalid character 'o' looking for beginning of value", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			full := strings.Replace(src+c.helper, "\ntools:", "\n  second: {provider: scripted, script: [{then: [{say: I am the other.}]}]}\ntools:", 1)
			a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, full, config.Options{}), runtime.Tenant{ID: "acme", Name: "acme", Revision: 1}, slog.New(slog.DiscardHandler))
			outcome, lines := runTurn(t, a, newSubmission(c.text))
			var shown strings.Builder
			for _, l := range lines {
				if text, ok := strings.CutPrefix(l, "chunk "); ok {
					shown.WriteString(text)
				}
			}
			if outcome.Status.State != c.state || outcome.Status.Message.Text() != c.says || shown.String() != c.shown {
				t.Errorf("%s %q, shown %q", outcome.Status.State, outcome.Status.Message.Text(), shown.String())
			}
		})
	}
}

// TestCardKeys checks what the card has of a configuration.
func TestCardKeys(t *testing.T) {
	t.Parallel()
	src := `
llms: {default: {provider: scripted}}
tools: {clock: {type: function, handler: current_time}}
agents:
  plain: {instruction: SECRET, tools: [clock]}
  full:
    name: The Agent
    description: Does it.
    version: 2.1.0
    visibility: private
    streaming: false
    input_modes: [text/plain, image/png]
    output_modes: [text/markdown]
    skills: [{id: s, name: Skill, description: It can., tags: [a, b]}]
    security:
      schemes: {token: {type: http, scheme: bearer, bearer_format: JWT}, key: {type: apiKey, name: X-API-Key, in: header}}
      require: [key]
`
	a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, src, config.Options{}), runtime.Tenant{ID: "acme", Name: "acme", Revision: 1}, slog.New(slog.DiscardHandler))
	made := "plain answers questions with the help of clock."
	want := []agentsvc.Card{{
		Agent: "plain", Name: "plain", Description: made, Version: "1.0.0", Visibility: agentsvc.Public, Streaming: true,
		InputModes: []string{"text/plain"}, OutputModes: []string{"text/plain"},
		Skills: []agentsvc.Skill{{ID: "plain", Name: "plain", Description: made, Tags: []string{"llm"}}},
	}, {
		Agent: "full", Name: "The Agent", Description: "Does it.", Version: "2.1.0", Visibility: agentsvc.Private,
		InputModes: []string{"text/plain", "image/png"}, OutputModes: []string{"text/markdown"},
		Skills:  []agentsvc.Skill{{ID: "s", Name: "Skill", Description: "It can.", Tags: []string{"a", "b"}}},
		Schemes: []agentsvc.Scheme{{Name: "key", Header: "X-API-Key"}, {Name: "token", Format: "JWT"}}, RequiredSchemes: []string{"key"},
	}}
	if diff := cmp.Diff(want, a.Cards()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestPeersTransferBothWays runs two agents of a configuration that hand control to each other, with an end and without
// one.
func TestPeersTransferBothWays(t *testing.T) {
	t.Parallel()
	src := `llms:
  first:
    provider: scripted
    script:
      - {when: {text: "^note:\nready$"}, then: [{say: "Here it is."}]}
      - {when: {text: "^note:\nround$"}, then: [{call: {tool: transfer_to_second, arguments: {note: round}}}]}
      - {then: [{call: {tool: transfer_to_second, arguments: {note: "{{text}}"}}}]}
  second:
    provider: scripted
    script:
      - {when: {text: "round$"}, then: [{call: {tool: transfer_to_first, arguments: {note: round}}}]}
      - {then: [{call: {tool: transfer_to_first, arguments: {note: ready}}}]}
agents:
  first: {llm: first, sub_agents: [second], reasoning: {max_transfers: 4}}
  second: {llm: second, sub_agents: [first]}
`
	a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, src, config.Options{}), runtime.Tenant{ID: "acme", Name: "acme", Revision: 1}, slog.New(slog.DiscardHandler))
	for text, want := range map[string]string{
		"get it": "completed Here it is.",
		"round":  "failed the agents have handed control over to each other 4 times without an answer, the most that one turn may",
	} {
		outcome, _ := runTurn(t, a, newSubmissionFor("first", text))
		if got := string(outcome.Status.State) + " " + outcome.Status.Message.Text(); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestInputModesFollowModel checks the input modes of agents that name none: agents on a model that sees images accept
// images.
func TestInputModesFollowModel(t *testing.T) {
	t.Parallel()
	src := `llms:
  seeing: {provider: openai, api_key: k}
  blind: {provider: ollama}
  default: {provider: scripted}
agents:
  seer: {llm: seeing}
  reader: {llm: seeing, input_modes: [text/plain]}
  listener: {llm: blind}
  group: {type: sequential, sub_agents: [seer]}
`
	a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, src, config.Options{}), runtime.Tenant{ID: "acme", Name: "acme", Revision: 1}, slog.New(slog.DiscardHandler))
	text := []string{"text/plain"}
	for name, want := range map[string][]string{
		"seer": {"text/plain", "image/jpeg", "image/png", "image/gif", "image/webp"}, "reader": text, "listener": text, "group": text,
	} {
		card, _ := a.Card(name)
		if diff := cmp.Diff(want, card.InputModes); diff != "" {
			t.Errorf("%s -want +got:\n%s", name, diff)
		}
	}
}

// TestApprovalKeys checks what an approval asks for each setting.
func TestApprovalKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, tool string
		asked      agentsvc.Approval
	}{
		{"no", "{type: function, handler: calculator}", agentsvc.Approval{}},
		{"require_approval", "{type: function, handler: calculator, require_approval: true}", agentsvc.Approval{Prompt: "May it run?"}},
		{"approval_prompt", "{type: function, handler: calculator, require_approval: true, approval_prompt: Sure}", agentsvc.Approval{Prompt: "Sure"}},
		{"approval_timeout", "{type: function, handler: calculator, require_approval: true, approval_timeout: 1h}",
			agentsvc.Approval{Prompt: "May it run?", Timeout: time.Hour}},
		{"of write_file", "{type: function, handler: write_file, parameters: {}}", agentsvc.Approval{Prompt: "May it run?"}},
		{"of commands", "{type: command}", agentsvc.Approval{}}, // since the arguments do not match the schema
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			src := "llms: {default: {provider: scripted, script: [{when: {text: go}, then: [{call: {tool: it, arguments: {expression: \"1\"}}}]}]}}\n" +
				"tools: {it: " + c.tool + "}\nagents: {helper: {tools: [it]}}\n"
			a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, src, config.Options{}), runtime.Tenant{ID: "default", Name: "default", Revision: 1, DefaultApp: true},
				slog.New(slog.DiscardHandler), withSandbox(t))
			outcome, _ := runTurn(t, a, newSubmission("go"))
			got, err := a.Tasks().Reader.Get(t.Context(), task.Visibility{}, outcome.ID, store.TaskParts{Approvals: true})
			if err != nil {
				t.Fatal(err)
			}
			var requested agentsvc.Approval
			for _, p := range got.Approvals {
				requested = agentsvc.Approval{Prompt: p.Prompt, Timeout: p.Timeout}
			}
			if diff := cmp.Diff(c.asked, requested); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestGuardrailKeys checks each key of a guardrail with a model that repeats its input.
func TestGuardrailKeys(t *testing.T) {
	t.Parallel()
	const refused, withheld = "The message was withheld by", "The answer was withheld by"
	for _, c := range []struct{ rail, text, says, found string }{
		{"input: {length: {max_length: 3}}", "four", refused, "input.length block"},
		{"input: {length: {max_length: 3, enabled: false}}", "four", "four", ""},
		{"input: {length: {min_length: 3}}", "ab", refused, "input.length block"},
		{"input: {length: {max_length: 3, action: modify}}", "four", "fou", "input.length modify"},
		{"input: {length: {max_length: 3, action: warn}}", "four", "four", "input.length warn"},
		{"input: {length: {max_length: 3, action: allow}}", "four", "four", "input.length allow"},
		{"input: {injection: {patterns: [Foo]}}", "a foo", refused, "input.injection block"},
		{"input: {injection: {patterns: [Foo], case_sensitive: true}}", "a foo", "a foo", ""},
		{"input: {injection: {patterns: [Foo], action: modify}}", "a foo", "a [removed]", "input.injection modify"},
		{"input: {injection: {patterns: [Foo], enabled: false}}", "a foo", "a foo", ""},
		{"input: {length: {max_length: 3}, injection: {patterns: [foo]}}", "a foo", refused, "input.length block"},
		{"input: {chain_mode: collect_all, length: {max_length: 3}, injection: {patterns: [foo]}}", "a foo", refused, "input.length block, input.injection block"},
		{"input: {sanitizer: {trim_whitespace: true}}", " a ", "a", "input.sanitizer modify"},
		{"input: {sanitizer: {strip_html: true}}", "<b>a</b>", "a", "input.sanitizer modify"},
		{"input: {sanitizer: {normalize_unicode: true}}", "a\u200bb", "ab", "input.sanitizer modify"},
		{"input: {sanitizer: {max_length: 2}}", "abc", "ab", "input.sanitizer modify"},
		{"input: {sanitizer: {max_length: 2, enabled: false}}", "abc", "abc", ""},
		{"output: {pii: {detect_email: true}}", "a@b.example", "*@*.*******", "output.pii modify"},
		{"output: {pii: {detect_email: true, enabled: false}}", "a@b.example", "a@b.example", ""},
		{"output: {pii: {detect_phone: true}}", "+49 30 1234567", "+** ** *******", "output.pii modify"},
		{"output: {pii: {detect_ssn: true}}", "123-45-6789", "***-**-****", "output.pii modify"},
		{"output: {pii: {detect_credit_card: true}}", "4111 1111 1111 1111", "**** **** **** ****", "output.pii modify"},
		{"output: {pii: {detect_email: true, redact_mode: remove}}", "to a@b.example!", "to !", "output.pii modify"},
		{"output: {pii: {detect_email: true, action: block}}", "a@b.example", withheld, "output.pii block"},
		{"output: {pii: {detect_email: true, action: warn}}", "a@b.example", "a@b.example", "output.pii warn"},
		{"output: {content: {blocked_keywords: [foo]}}", "Foo", withheld, "output.content block"},
		{"output: {content: {blocked_keywords: [foo], enabled: false}}", "Foo", "Foo", ""},
		{"output: {content: {blocked_patterns: [\"f.o\"]}}", "fxo", withheld, "output.content block"},
		{"output: {content: {blocked_patterns: [\"f.o\"], action: modify}}", "a fxo", "a [removed]", "output.content modify"},
		{"output: {content: {blocked_keywords: [foo]}, pii: {detect_email: true, action: block}}", "foo a@b.example", withheld, "output.content block"},
		{"output: {chain_mode: collect_all, content: {blocked_keywords: [foo]}, pii: {detect_email: true, action: block}}", "foo a@b.example", withheld,
			"output.content block, output.pii block"},
		{"tool: {authorization: {blocked_tools: [\"c*\"]}}", "call", "calc: not allowed by policy", "tool.authorization block"},
		{"tool: {authorization: {allowed_tools: [x]}}", "call", "calc: not allowed by policy", "tool.authorization block"},
		{"tool: {authorization: {allowed_tools: [\"ca*\"]}}", "call", "1", ""},
		{"tool: {authorization: {allowed_tools: [], action: warn}}", "call", "1", "tool.authorization warn"},
		{"tool: {authorization: {allowed_tools: [], enabled: false}}", "call", "1", ""},
		{"tool: {chain_mode: collect_all, authorization: {allowed_tools: []}}", "call", "calc: not allowed by policy", "tool.authorization block"},
		{"mode: shadow, input: {length: {max_length: 3}}", "four", "four", "input.length block"},
		{"enabled: false, input: {length: {max_length: 3}}", "four", "four", ""},
	} {
		t.Run(c.rail, func(t *testing.T) {
			t.Parallel()
			g := newGuardedApp(t, `
llms:
  default:
    provider: scripted
    script:
      - when: {text: "^call$"}
        then: [{call: {tool: calc, arguments: {expression: "1"}}}]
      - when: {tool_result: calc}
        then: [{say: "{{result}}"}]
      - then: [{say: "{{text}}"}]
tools: {calc: {type: function, handler: calculator}}
agents: {helper: {tools: [calc], guardrails: g}}
guardrails: {g: {`+c.rail+`}}
`)
			outcome, _ := runTurn(t, g.Runtime, newSubmission(c.text))
			says := outcome.Status.Message.Text()
			if c.says == refused || c.says == withheld {
				says = strings.TrimSpace(says)[:min(len(c.says), len(says))]
			}
			found, _ := g.drainFindings()
			for i := range found {
				found[i] = strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(found[i], "acme g "), " false"), " true")
			}
			if says != c.says || strings.Join(found, ", ") != c.found {
				t.Errorf("%s %q, found %q", outcome.Status.State, outcome.Status.Message.Text(), found)
			}
		})
	}
}

// TestEmbedderKeys checks each embedder setting in the requests for vectors.
func TestEmbedderKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		embedder, path, key string
		body                map[string]any
		maxTexts            int // texts in a request; 0 for any number
	}{
		{"{base_url: URL}", "/api/embed", "", map[string]any{"model": "nomic-embed-text", "dimensions": nil}, 0},
		{"{base_url: URL, api_key: k, model: m, dimension: 27, timeout: 5, batch_size: 1}", "/api/embed", "Bearer k", map[string]any{"model": "m", "dimensions": 27.0}, 1},
		{"{provider: openai, api_key: k, base_url: URL, dimension: 27}", "/embeddings", "Bearer k",
			map[string]any{"model": "text-embedding-3-small", "dimensions": 27.0}, 0},
		{"{provider: cohere, api_key: k, base_url: URL, input_type: clustering, output_dimension: 27, truncate: END}", "/v2/embed", "Bearer k",
			map[string]any{"model": "embed-v4.0", "input_type": "clustering", "output_dimension": 27.0, "truncate": "END"}, 0},
		{"{provider: cohere, api_key: k, base_url: URL}", "/v2/embed", "Bearer k", map[string]any{"input_type": "search_query", "output_dimension": nil, "truncate": nil}, 0},
	} {
		t.Run(c.embedder, func(t *testing.T) {
			t.Parallel()
			s := embeddertest.NewServer(t)
			src := "llms: {default: {provider: scripted}}\nagents: {helper: {}}\nstorage: {memory: {backend: vector, embedder: e}}\n" +
				"embedders: {e: " + strings.Replace(c.embedder, "URL", "\""+s.URL+"\"", 1) + "}\n"
			a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, src, config.Options{}), runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, PrivateNetwork: true},
				slog.New(slog.DiscardHandler))
			runSessionTurn(t, a, ana, "first", "My dog is called Rex")
			var requested []embeddertest.Request
			dbtest.WaitUntil(t, "the embedder is asked", func() bool { // memories are stored after the turn's end
				runSessionTurn(t, a, ana, agentsvc.NewID(), "What is my dog called?")
				requested = s.Requests()
				return len(requested) > 0
			})
			for _, r := range requested {
				if n := len(r.Texts()); c.maxTexts > 0 && n > c.maxTexts {
					t.Errorf("%d texts in one request", n)
				}
			}
			last := requested[len(requested)-1]
			got := map[string]any{}
			for key := range c.body {
				got[key] = last.Body[key]
			}
			if diff := cmp.Diff(c.body, got); diff != "" || last.Path != c.path || last.Key != c.key {
				t.Errorf("asked %s with key %q; body -want +got:\n%s", last.Path, last.Key, diff)
			}
		})
	}
}

// TestScriptKeys checks what the scripted model does for each script setting.
func TestScriptKeys(t *testing.T) {
	t.Parallel()
	a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, `
llms:
  default:
    provider: scripted
    script:
      - when: {message_id: "^odd-"}
        then: [{say: odd}]
      - when: {text: "^usage$"}
        then: [{say: a b c}]
        usage: {input_tokens: 70, output_tokens: 30}
      - when: {text: "^item$"}
        then: [{say: a, usage: {input_tokens: 7, output_tokens: 3}}]
      - when: {text: "^question$"}
        then: [{ask: Which one}]
        usage: {input_tokens: 2, output_tokens: 3}
      - when: {text: "^files$"}
        then:
          - artifact: {name: text, media_type: text/plain, text: "one "}
          - artifact: {name: text, text: two, append: true, last: true}
          - artifact: {name: bytes, media_type: image/png, file_base64: aGk=}
          - artifact: {name: far, media_type: image/png, url: "https://example.com/a.png"}
          - artifact: {name: data, data: {a: 1}}
      - when: {text: "^down$"}
        then: [{fail: {status: 403, message: CANARY}}]
agents: {helper: {}}
`, config.Options{}), runtime.Tenant{ID: "acme", Name: "acme", Revision: 1}, slog.New(slog.DiscardHandler))
	odd := newSubmission("anything")
	odd.Message.ID = "odd-1"
	if outcome, _ := runTurn(t, a, odd); outcome.Status.Message.Text() != "odd" {
		t.Errorf("message_id: %q", outcome.Status.Message.Text())
	}
	for text, want := range map[string]float64{"usage": 100, "item": 10, "question": 5} {
		outcome, _ := runTurn(t, a, newSubmission(text))
		if used, _ := outcome.Status.Message.Metadata["tokens_used"].(map[string]any); used["total"] != want {
			t.Errorf("%s: %v", text, used)
		}
	}
	if outcome, _ := runTurn(t, a, newSubmission("down")); outcome.Status.State != agentsvc.Failed || strings.Contains(outcome.Status.Message.Text(), "CANARY") {
		t.Errorf("fail: %s %q", outcome.Status.State, outcome.Status.Message.Text())
	}
	outcome, _ := runTurn(t, a, newSubmission("files"))
	want := []agentsvc.Artifact{
		{ID: "text", Name: "text", Parts: []agentsvc.Part{agentsvc.TextPart("one "), agentsvc.TextPart("two")}},
		{ID: "bytes", Name: "bytes", Parts: []agentsvc.Part{{File: &agentsvc.File{Name: "bytes", MediaType: "image/png", Bytes: []byte("hi")}}}},
		{ID: "far", Name: "far", Parts: []agentsvc.Part{{File: &agentsvc.File{Name: "far", MediaType: "image/png", URI: "https://example.com/a.png"}}}},
		{ID: "data", Name: "data", Parts: []agentsvc.Part{{Data: &agentsvc.Data{Value: map[string]any{"a": 1.0}}}}},
	}
	if diff := cmp.Diff(want, outcome.Artifacts); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
