package runtime_test

import (
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
7:14: tools.web.url: must hold no user or password: set headers instead
8:40: tools.own.headers.Host: belongs to the protocol and cannot be set
14:38: agents.d.agent_card_file: cannot be read: open /nonexistent: no such file or directory
16:26: guardrails.g.output.content.blocked_keywords: are too large: they compile to 21004 instructions, at most 20000 are run`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
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
	if diff := cmp.Diff(want, checkConfig(src).Error()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
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
