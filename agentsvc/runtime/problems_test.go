package runtime_test

import (
	"cmp"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"stoa/agentsvc/config"
	"stoa/agentsvc/config/document"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/runtime"
)

// TestProblems checks that all problems that only the build finds are reported at once, each with its path, and that
// what depends on an invalid part is not reported again.
func TestProblems(t *testing.T) {
	t.Parallel()
	src := `llms:
  default: {provider: scripted, script: [{then: [{say: "{{x}}"}]}, {then: []}]}
  fine: {provider: scripted}
tools:
  files: {type: function, handler: read_file, working_directory: /nonexistent}
  jail: {type: command, working_directory: /}
  web: {url: "http://a:b@x", headers: {Host: x}}
  own: {url: http://x, headers: {Host: x}}
  off: {type: command, working_directory: /nonexistent, enabled: false}
agents:
  a: {tools: [files]}
  b: {type: sequential, sub_agents: [a, c]}
  c: {llm: fine, guardrails: g}
  d: {type: remote, agent_card_file: /nonexistent}
guardrails:
  g: {output: {content: {blocked_keywords: ["` + strings.Repeat("a", 21_000) + `"]}}}
`
	err := checkConfig(src)
	var invalid *document.Error
	if !errors.As(err, &invalid) {
		t.Fatalf("%T %v", err, err)
	}
	want := `2:50: llms.default.script[0].then[0]: {{x}} is not a placeholder; this rule has {{text}}, {{result}}
2:69: llms.default.script[1].then: is empty; say at least what to answer
5:66: tools.files.working_directory: /nonexistent is no folder
6:3: tools.jail: programs run only in a sandbox, and this host has none
6:44: tools.jail.working_directory: is the whole file system; name a folder in it
7:14: tools.web.url: must hold no user or password: set headers instead
7:46: tools.web.headers.Host: belongs to the protocol and cannot be set
8:40: tools.own.headers.Host: belongs to the protocol and cannot be set
14:38: agents.d.agent_card_file: cannot be read: open /nonexistent: no such file or directory
16:26: guardrails.g.output.content.blocked_keywords: are too large: they compile to 21004 instructions, at most 20000 are run`
	if diff := gocmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// checkConfig returns all problems of the default app's configuration, as a dry run does.
func checkConfig(src string) error {
	h := runtime.Dependencies{Host: runtime.Host{PublicEgress: egress.New(egress.Options{})}, Log: slog.New(slog.DiscardHandler)}
	return config.Check([]byte(src), config.Options{}, func(cfg *config.Config) error {
		a, err := runtime.Build(cfg, runtime.Tenant{ID: "default", DefaultApp: true}, h)
		if err != nil {
			return err
		}
		return a.Close()
	})
}

// TestAllProblems checks that the problems that only the build finds are reported together with all others, also of the
// same entry, and that nothing is reported that only follows from another problem.
func TestAllProblems(t *testing.T) {
	t.Parallel()
	src := `llms:
  default: {provider: scripted, fallbacks: [bad, loose, missing]}
  bad: {provider: scriptd, script: [{then: [{say: "{{x}}"}]}]}
  loose: {provider: "${UNSET}", fallbacks: [default]}
  said: {provider: scripted, scrpt: [], script: [{then: [{say: "{{x}}"}]}]}
agents:
  unread: {instrution: x, streaming: often, trigger: {type: schedule, cron: often, inputs: x}}
  round: {sub_agents: [round], notifications: [{id: x, url: "ftp://x", events: [task.completed]}, {id: y, url: "https://hooks.example.com", events: [task.completed], payload: {template: "{{"}}]}
  team: {type: parallel, sub_agents: [round, unread]}
  clockless: {trigger: {type: schedule, cron: "${UNSET}"}}
  typed: {type: lmm, context: {strategy: summary_buffer, summarizer_llm: bad}}
  short: {context: {strategy: summary_buffer, summarizer_llm: bad}}
tools:
  files: {type: function, handler: read_file, working_directory: /nonexistent, colour: red}
  none: {type: fuction}
guardrails:
  g: {input: {injection: {patterns: ["("]}}}
databases: {x: {driver: oracle, database: x}}
storage: {sessions: {database: x}, memory: {backend: vector, embedder: e}}
embedders: {e: {provider: nobody}}
rate_limiting: {enabled: true, backend: sql, sql_database: x, limits: [{type: count, window: fortnight, limit: 1}]}
`
	want := `2:50: llms.default.fallbacks[1]: leads back to where it began: default > loose > default
2:57: llms.default.fallbacks[2]: names none of llms: there is no "missing"
3:19: llms.bad.provider: must be one of anthropic, openai, gemini, ollama, scripted (did you mean "scripted"?)
3:28: llms.bad.script: belongs to provider scripted only
4:21: llms.loose.provider: needs the variable UNSET, which is not set; ${UNSET:default} would give it a default
4:45: llms.loose.fallbacks[0]: leads back to where it began: loose > default > loose
5:30: llms.said.scrpt: is not a known key (did you mean "script"?)
5:58: llms.said.script[0].then[0]: {{x}} is not a placeholder; this rule has {{text}}, {{result}}
7:12: agents.unread.instrution: is not a known key (did you mean "instruction"?)
7:38: agents.unread.streaming: must be true or false, not text
7:77: agents.unread.trigger.cron: is no schedule of minute, hour, day, month and weekday: expected exactly 5 fields, found 1: [often]
7:84: agents.unread.trigger.inputs: is not a known key (did you mean "input"?)
8:24: agents.round.sub_agents[0]: is the agent itself, which has control already
8:61: agents.round.notifications[0].url: must be an http or https address, such as https://example.com/
8:187: agents.round.notifications[1].payload.template: is no template: 1: unclosed action
10:47: agents.clockless.trigger.cron: needs the variable UNSET, which is not set; ${UNSET:default} would give it a default
11:17: agents.typed.type: must be one of llm, sequential, parallel, loop, runner, remote (did you mean "llm"?)
11:42: agents.typed.context.strategy: belongs to type llm only
11:74: agents.typed.context.summarizer_llm: belongs to type llm only
14:66: tools.files.working_directory: /nonexistent is no folder
14:80: tools.files.colour: is not a known key
15:16: tools.none.type: must be one of mcp, function, command (did you mean "function"?)
17:38: guardrails.g.input.injection.patterns[0]: is not a regular expression (RE2): error parsing regexp: missing closing ): ` + "`(`" + `
18:13: databases.x: host is needed
18:25: databases.x.driver: must be one of postgres, mysql, sqlite
20:27: embedders.e.provider: must be one of openai, ollama, cohere, hashing
21:94: rate_limiting.limits[0].window: must be one of minute, hour, day, week, month`
	if diff := gocmp.Diff(want, checkConfig(src).Error()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestProblemsOfOneBlock checks that a problem that only the build of a block finds is reported together with those of the
// block's other values, each once.
func TestProblemsOfOneBlock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, llms, block, want string
	}{
		{"schedule", "", `agents: {a: {trigger: {type: schedule, cron: "99 * * * *", timezone: Mars/X, path: /x}}}`, `
agents.a.trigger.cron: is no schedule
agents.a.trigger.timezone: is no time zone
agents.a.trigger.path: belongs to type webhook`},
		{"schedule, found by the build alone", "", `agents: {a: {trigger: {type: schedule, cron: "99 * * * *", timezone: Mars/X}}}`, `
agents.a.trigger.cron: is no schedule
agents.a.trigger.timezone: is no time zone`},
		{"schedule without cron", "", `agents: {a: {trigger: {type: schedule, timezone: Mars/X}}}`, `
agents.a.trigger: a schedule needs cron
agents.a.trigger.timezone: is no time zone`},
		{"schedule with an empty cron", "", `agents: {a: {trigger: {type: schedule, cron: "", path: /x}}}`, `
agents.a.trigger: a schedule needs cron
agents.a.trigger.path: belongs to type webhook`},
		{"webhook", "", `agents: {a: {trigger: {type: webhook, secret: short, signature_header: Host, webhook_input: {template: "{{.x"}}}}`, `
agents.a.trigger.secret: 
agents.a.trigger.signature_header: is a header
agents.a.trigger.webhook_input.template: `},
		{"webhook with a method", "", `agents: {a: {trigger: {type: webhook, secret: short, methods: [GOT]}}}`, `
agents.a.trigger.secret: 
agents.a.trigger.methods[0]: must be one of`},
		{"webhook with a mode", "", `agents: {a: {trigger: {type: webhook, secret: short, response: {mode: sink}}}}`, `
agents.a.trigger.secret: 
agents.a.trigger.response.mode: must be one of`},
		{"trigger of an unknown type", "", `agents: {a: {trigger: {type: web, secret: short}}}`, `
agents.a.trigger.secret: belongs to type webhook only
agents.a.trigger.type: must be one of`},
		{"notification", "", `agents: {a: {notifications: [{id: n, url: "ftp://x", events: [task.failed], payload: {template: "{{"}}]}}`, `
agents.a.notifications[0].url: must be an http or https address
agents.a.notifications[0].payload.template: is no template`},
		{"notification, found by the build alone", "", `agents: {a: {notifications: [{id: n, url: "https://u:p@x", events: [task.failed], payload: {template: "{{"}}]}}`, `
agents.a.notifications[0].url: contains a user name
agents.a.notifications[0].payload.template: is no template`},
		{"notification without an address", "", `agents: {a: {notifications: [{id: n, events: [task.failed], payload: {template: "{{"}}]}}`, `
agents.a.notifications[0]: url is needed
agents.a.notifications[0].payload.template: is no template`},
		{"script", `{provider: scripted, script: [{when: {text: "("}, then: [{say: "{{x}}"}]}, {then: []}, {then: [{pause: 11m}]}]}`, "", `
llms.default.script[0].when.text: is not a regular expression
llms.default.script[1].then: is empty
llms.default.script[2].then[0].pause: is 11m0s; at most 10m0s`},
		{"script with a value that cannot be read", `{provider: scripted, script: [{when: {text: "(?P<x>["}, then: [{say: "{{x}}"}]}, {then: [{pause: 10}]}]}`, "", `
llms.default.script[0].when.text: is not a regular expression
llms.default.script[1].then[0].pause: must be a duration`},
		{"model", `{provider: anthropic, api_key: k, base_url: "ftp://x", max_tokens: 10, thinking: {enabled: true}}`, "", `
llms.default.base_url: must be an http or https address
llms.default.thinking.budget_tokens: must be less than max_tokens`},
		{"documents of an API", "", `document_stores: {d: {source: {type: api, api: {url: "ftp://x", pagination: {next_field: "", page_param: p, token_param: q}}}}}`, `
document_stores.d.source: url is no address
document_stores.d.source.api.pagination: holds both
document_stores.d.source.api.pagination.token_param: needs next_field`},
		{"documents of an API with a wrong embedder", "", `document_stores: {d: {embedder: none, vector_store: none, source: {type: api, api: {url: "ftp://x"}}}}`, `
document_stores.d.embedder: names none of embedders
document_stores.d.vector_store: names none of vector_stores
document_stores.d.source: url is no address`},
		{"documents without an address", "", `document_stores: {d: {source: {type: api, api: {pagination: {page_param: p, token_param: q}}}}}`, `
document_stores.d.source.api: url is needed
document_stores.d.source.api.pagination.token_param: needs next_field`},
		{"function", "", `tools: {f: {type: function, handler: read_file, working_directory: /nonexistent, max_execution_time: 0s, approval_prompt: x}}`, `
tools.f.working_directory: /nonexistent is no folder
tools.f.max_execution_time: must be more than 0s
tools.f.approval_prompt: asks nobody`},
		{"MCP server", "", `tools: {m: {url: "http://u:p@x", headers: {Host: x, "a b": y}, args: [x]}}`, `
tools.m.url: must hold no user
tools.m.headers.Host: belongs to the protocol
tools.m.headers."a b": is no name of a header
tools.m.args: belongs to a server with a command`},
		{"guardrail", "", `guardrails: {g: {input: {injection: {patterns: ["x"]}, length: {min_length: 3, max_length: 2}}, output: {pii: {}, content: {blocked_keywords: ["` + strings.Repeat("a", 21_000) + `"]}}}}`, `
guardrails.g.input.length.min_length: is more than max_length
guardrails.g.output.pii: looks for nothing
guardrails.g.output.content.blocked_keywords: are too large`},
		{"remote agent", "", `agents: {r: {type: remote, agent_card_file: /nonexistent, headers: {"a b": x}}}`, `
agents.r.agent_card_file: cannot be read
agents.r.headers."a b": is no name of a header`},
		{"remote agent with a wrong address", "", `agents: {r: {type: remote, url: "ftp://x"}}`, `
agents.r.url: must be an http or https address`},
		{"agent of a wrong model", "", `agents: {a: {llm: none, tools: [none], sub_agents: [b], trigger: {type: webhook, secret: short}}, b: {type: sequential, sub_agents: [c]}, c: {type: remote, agent_card_file: /nonexistent}}`, `
agents.a.llm: names none of llms
agents.a.tools[0]: names none of tools
agents.a.trigger.secret: must be
agents.c.agent_card_file: cannot be read`},
		{"command", "", `tools: {c: {type: command, working_directory: /nonexistent, allowed_commands: ["a b"], denied_commands: ["c d"]}}`, `
tools.c: programs run only in a sandbox
tools.c.working_directory: /nonexistent is no folder
tools.c.allowed_commands[0]: must be the name of a program
tools.c.denied_commands[0]: must be the name of a program`},
		{"structured output", "", `agents: {a: {structured_output: {schema: {type: object, properties: {x: {type: 5}}}}}}`, `
agents.a.structured_output.schema.properties.x.type: is no JSON Schema`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			src := "llms: {default: " + cmp.Or(c.llms, "{provider: scripted}") + "}\n" + c.block
			var invalid *document.Error
			if err := checkConfig(src); !errors.As(err, &invalid) {
				t.Fatalf("%T %v", err, err)
			}
			var got []string
			for _, p := range invalid.Problems {
				got = append(got, p.Path+": "+p.Message)
			}
			want := strings.Split(c.want[1:], "\n")
			slices.Sort(got)
			slices.Sort(want)
			for i := range got {
				if i < len(want) && strings.HasPrefix(got[i], want[i]) {
					got[i] = want[i]
				}
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestUnsoundConfigurations builds what can be read of each wrong document of package config: a tenant's dry run does,
// and must not end the process.
func TestUnsoundConfigurations(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../config/testdata/problems/*.txtar")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d documents (%v)", len(files), err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		src := string(archive.Files[0].Data)
		if err := checkConfig(src); err == nil && string(archive.Files[1].Data) != "nothing\n" && !strings.Contains(string(archive.Comment), "tenant") {
			t.Errorf("%s has no problem", file)
		}
		// The same with a line missing: what names it then names nothing.
		lines := strings.SplitAfter(src, "\n")
		for i := range lines {
			_ = checkConfig(strings.Join(slices.Delete(slices.Clone(lines), i, i+1), ""))
		}
	}
}

// TestUnsoundDocumentStores builds what can be read of document stores with one mistake each, which are reported once.
func TestUnsoundDocumentStores(t *testing.T) {
	t.Parallel()
	const table = "tables: [{table: a, columns: [b], id_column: c}]"
	for src, want := range map[string]string{
		"{}":                               "document_stores.x: source is needed",
		"null":                             "document_stores.x: source is needed",
		"{source: {}}":                     "document_stores.x.source: type is needed",
		"{source: null}":                   "document_stores.x: source is needed",
		"{source: upload}":                 "document_stores.x.source: must be",
		"{source: {type: ftp}}":            "document_stores.x.source.type: must be one of",
		"{source: {type: sql}}":            "document_stores.x.source",
		"{source: {type: api}}":            "document_stores.x.source",
		"{source: {type: directory}}":      "document_stores.x.source",
		"{source: {type: sql, sql: null}}": "document_stores.x.source",
		"{source: {type: sql, sql: {database: none, " + table + "}}}":   "document_stores.x.source.sql.database: names none of databases",
		"{source: {type: sql, sql: {database: broken, " + table + "}}}": "databases.broken.driver",
		"{source: {type: api, api: {url: 5}}}":                          "document_stores.x.source",
		"{source: {type: upload}, embedder: none}":                      "document_stores.x.embedder: names none of embedders",
		"{source: {type: upload}, embedder: broken}":                    "embedders.broken.provider",
		"{source: {type: upload}, embedder: words, vector_store: none}": "document_stores.x.vector_store: names none of vector_stores",
		"{source: {type: upload}, embedder: words, vector_store: bad}":  "vector_stores.bad.type",
		"{source: {type: upload}, vector_store: bad}":                   "vector_stores.bad.type",
	} {
		err := checkConfig(`llms: {default: {provider: scripted}}
databases: {broken: {driver: oracle, host: h, database: x}}
embedders: {words: {provider: hashing}, broken: {provider: none}}
vector_stores: {bad: {type: none}}
agents: {a: {document_stores: [x], include_context: true}}
document_stores: {x: ` + src + "}\n")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", src, err, want)
		}
	}
}
