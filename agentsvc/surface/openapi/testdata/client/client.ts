// Does with the generated client what most users of the API do, and prints what it saw as JSON.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

declare const process: { argv: string[] };

const [, , baseUrl, secret] = process.argv;
const operator = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${secret}` } });

/** Returns what was answered, or fails with the error. */
function must<T>(answer: { data?: T; error?: unknown; response: Response }): T {
  if (answer.error !== undefined || answer.data === undefined) {
    throw new Error(`${answer.response.status} ${JSON.stringify(answer.error)}`);
  }
  return answer.data;
}

const seen: Record<string, unknown> = {};

const app = { app: "shop" };
const config = `# the shop
llms:
  m:
    provider: scripted
    script:
      - when: {text: sum}
        then: [{call: {tool: calc, arguments: {expression: "1+2"}}}]
      - then: [{say: "You said: {{text}}"}]
tools: {calc: {type: function, handler: calculator, require_approval: true}}
agents: {assistant: {llm: m, tools: [calc]}}
`;
const created = must(
  await operator.POST("/admin/apps", {
    params: { header: { "Idempotency-Key": "create-shop" } },
    body: { name: app.app, config, labels: { tier: "free" } },
  }),
);
seen.created = [created.name, created.status];

const token = must(await operator.POST("/admin/apps/{app}/tokens", { params: { path: app }, body: { sub: "ana", roles: ["admin"] } }));
const user = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token.access_token}` } });

const agent = { agent: "assistant" };
const sent = must(
  await user.POST("/v1/agents/{agent}/message:send", {
    params: { path: agent },
    body: { message: { messageId: "m1", role: "ROLE_USER", parts: [{ text: "hello" }] }, configuration: { blocking: true } },
  }),
);
const id = sent.task!.id;
seen.sent = sent.task!.status.state;

const task = must(await user.GET("/v1/agents/{agent}/tasks/{task}", { params: { path: { ...agent, task: id }, query: { history_length: 1 } } }));
seen.read = [task.id === id, task.history?.length];

const list = must(await user.GET("/v1/agents/{agent}/tasks", { params: { path: agent, query: { page_size: 10 } } }));
seen.listed = [list.tasks.map((t) => t.id === id), list.totalSize];

const usage = must(await user.GET("/billing/usage", { params: { query: { group_by: "agent" } } }));
seen.usage = [usage.totals.runs, usage.rows.map((row) => row.agent)];

const message = (messageId: string, text: string) => ({ messageId, role: "ROLE_USER", parts: [{ text }] });
const stream = await user.POST("/v1/agents/{agent}/message:stream", { params: { path: agent }, parseAs: "text", body: { message: message("m2", "stream") } });
type Event = components["schemas"]["V1Event"];
const events = must(stream).split("\n").filter((line) => line.startsWith("data: ")).map((line): Event => JSON.parse(line.slice(6)));
seen.streamed = [events[0].task?.status?.state, events.some((e) => e.task?.status?.state === "TASK_STATE_COMPLETED")];

const asked = must(await user.POST("/v1/agents/{agent}/message:send", { params: { path: agent }, body: { message: message("m3", "sum"), configuration: { blocking: true } } }));
const waiting = must(await user.GET("/tasks", { params: { query: { status: "input_required" } } }));
seen.waiting = waiting.tasks.map((t) => [t.task_id === asked.task!.id, t.approvals?.length]);
seen.approved = must(await user.POST("/tasks/{task}/approve", { params: { path: { task: asked.task!.id } }, body: {} })).task_id === asked.task!.id;

const yaml = { "Content-Type": "application/yaml", Accept: "application/yaml" };
const current = await user.GET("/config", { headers: yaml, parseAs: "text" });
const save = (ifMatch: string, text: string) =>
  user.PUT("/config", { params: { header: { "If-Match": ifMatch } }, body: text, bodySerializer: (b) => b as string, headers: { "Content-Type": "application/yaml" } });
const configTag = current.response.headers.get("ETag")!;
seen.config = [(current.data as unknown) === config, must(await save(configTag, config + "# more\n")).revision, (await save(configTag, config)).response.status];

const read = await operator.GET("/admin/apps/{app}", { params: { path: app } });
const tag = read.response.headers.get("ETag")!;
const shown = must(read);
seen.tag = typeof shown === "object" && shown.etag === tag; // it would be a text for a client that accepts YAML

const update = (ifMatch: string) =>
  operator.PATCH("/admin/apps/{app}", { params: { path: app, header: { "If-Match": ifMatch } }, body: { display_name: "The shop" } });
seen.updated = must(await update(tag)).display_name;
const late = await update(tag);
seen.late = [late.response.status, late.error?.error.code];

// @ts-expect-error: a name that the API does not accept does not compile.
const misspelled = await user.GET("/billing/usage", { params: { query: { groupBy: "agent" } } });
seen.misspelled = [misspelled.response.status, misspelled.error?.error.details.field];

const removed = await operator.DELETE("/admin/apps/{app}", { params: { path: app } });
const gone = await operator.GET("/admin/apps/{app}", { params: { path: app } });
seen.removed = [removed.response.status, gone.response.status, gone.error?.error.code];

console.log(JSON.stringify(seen));
