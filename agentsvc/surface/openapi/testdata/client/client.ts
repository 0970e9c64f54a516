// Does with the generated client what most users of the API do, and prints what it saw as JSON.
import createClient from "openapi-fetch";
import type { paths } from "./api.js";

declare const process: { argv: string[] };

const [, , baseUrl, secret] = process.argv;
const operator = createClient<paths, "application/json">({ baseUrl, headers: { Authorization: `Bearer ${secret}` } });

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
document_stores: {manual: {source: {type: upload}}}
`;
const created = must(
  await operator.POST("/admin/apps", {
    params: { header: { "Idempotency-Key": "create-shop" } },
    body: { name: app.app, config, labels: { tier: "free" } },
  }),
);
seen.created = [created.name, created.status];

const token = must(await operator.POST("/admin/apps/{app}/tokens", { params: { path: app }, body: { sub: "ana", roles: ["admin"] } }));
if (!("access_token" in token)) throw new Error("the answer to a repeated request has no token");
const user = createClient<paths, "application/json">({ baseUrl, headers: { Authorization: `Bearer ${token.access_token}` } });

const agent = { agent: "assistant" };
const sent = must(
  await user.POST("/v1/agents/{agent}/message:send", {
    params: { path: agent },
    body: { message: { messageId: "m1", role: "ROLE_USER", parts: [{ text: "hello" }] }, configuration: { blocking: true } },
  }),
);
if (!("task" in sent)) throw new Error("the agent answered with a message");
const id = sent.task.id;
seen.sent = sent.task.status.state;

const task = must(await user.GET("/v1/agents/{agent}/tasks/{task}", { params: { path: { ...agent, task: id }, query: { history_length: 1 } } }));
seen.read = [task.id === id, task.history?.length];

const list = must(await user.GET("/v1/agents/{agent}/tasks", { params: { path: agent, query: { page_size: 10 } } }));
seen.listed = [list.tasks.map((t) => t.id === id), list.totalSize];

const usage = must(await user.GET("/billing/usage", { params: { query: { group_by: "agent" } } }));
seen.usage = [usage.totals.runs, usage.rows.map((row) => row.agent)];

const message = (messageId: string, text: string) => ({ messageId, role: "ROLE_USER" as const, parts: [{ text }] });

/** Yields the events of a stream as they arrive. */
async function* read<T>(stream: ReadableStream<Uint8Array> | null): AsyncGenerator<T> {
  const reader = stream!.getReader(), decoder = new TextDecoder();
  for (let rest = "", chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
    const lines = (rest + decoder.decode(chunk.value, { stream: true })).split("\n");
    rest = lines.pop()!;
    for (const line of lines) if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
  }
}

const stream = await user.POST("/v1/agents/{agent}/message:stream", { params: { path: agent }, parseAs: "stream", body: { message: message("m2", "stream") } });
type Streamed = paths["/v1/agents/{agent}/message:stream"]["post"]["responses"][200]["content"]["text/event-stream"];
const events: Streamed[] = [];
for await (const event of read<Streamed>(must(stream))) events.push(event);
seen.streamed = [events[0].task?.status?.state, events.some((e) => e.task?.status?.state === "TASK_STATE_COMPLETED")];

const asked = must(await user.POST("/v1/agents/{agent}/message:send", { params: { path: agent }, body: { message: message("m3", "sum"), configuration: { blocking: true } } }));
if (!("task" in asked)) throw new Error("the agent answered with a message");
const waiting = must(await user.GET("/tasks", { params: { query: { status: "input_required" } } }));
seen.waiting = waiting.tasks.map((t) => [t.task_id === asked.task.id, t.approvals?.length]);
seen.approved = must(await user.POST("/tasks/{task}/approve", { params: { path: { task: asked.task.id } }, body: {} })).task_id === asked.task.id;

// The same over JSON-RPC: params and results have types, and no cast is needed.
const called = must(
  await user.POST("/agents/{agent}", {
    params: { path: agent },
    body: { jsonrpc: "2.0", id: 1, method: "message:send", params: { message: { message_id: "m4", role: "user", parts: [{ type: "text", text: "hello" }] } } },
  }),
);
if (!("result" in called) || !("task_id" in called.result)) throw new Error("the call failed");
const calledId = called.result.task_id;
const ownList = must(await user.POST("/agents/{agent}", { params: { path: agent }, body: { jsonrpc: "2.0", id: 2, method: "tasks/list", params: { page_size: 1 } } }));
if (!("result" in ownList) || !("tasks" in ownList.result)) throw new Error("the list failed");
seen.called = [called.result.status.state, ownList.result.tasks.map((t) => t.task_id === calledId)];

const a2aCall = { path: agent, header: { "A2A-Version": "1.0" } };
const a2aSent = must(
  await user.POST("/a2a/{agent}", {
    params: a2aCall,
    body: { jsonrpc: "2.0", id: "a", method: "SendMessage", params: { message: message("m5", "hello"), configuration: { returnImmediately: false } } },
  }),
);
if (!("result" in a2aSent) || a2aSent.result === null || !("task" in a2aSent.result) || !a2aSent.result.task) throw new Error("the call failed");
const a2aTask = must(await user.POST("/a2a/{agent}", { params: a2aCall, body: { jsonrpc: "2.0", id: "b", method: "GetTask", params: { id: a2aSent.result.task.id } } }));
if (!("result" in a2aTask) || a2aTask.result === null || !("status" in a2aTask.result)) throw new Error("the task is not read");
const older = must(
  await user.POST("/a2a/{agent}", {
    params: { path: agent },
    body: { jsonrpc: "2.0", id: "c", method: "message/send", params: { message: { kind: "message", messageId: "m6", role: "user", parts: [{ kind: "text", text: "hello" }] } } },
  }),
);
if (!("result" in older) || older.result === null || !("kind" in older.result) || older.result.kind !== "task") throw new Error("the call failed");
seen.a2a = [a2aSent.result.task.status.state, a2aTask.result.status.state, older.result.status.state];

const tool = must(
  await user.POST("/mcp/{agent}", {
    params: { path: agent },
    body: { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: agent.agent, arguments: { message: "hello" } } },
  }),
);
if (!("result" in tool) || !("content" in tool.result)) throw new Error("the tool failed");
seen.tool = [tool.result.isError, tool.result.content[0].text];

// @ts-expect-error: params of another method do not compile.
const mixed = await user.POST("/agents/{agent}", { params: { path: agent }, body: { jsonrpc: "2.0", id: 3, method: "tasks/get", params: { page_size: 1 } } });
seen.mixed = mixed.data && "error" in mixed.data ? mixed.data.error.code : mixed.response.status;
// @ts-expect-error: a method that the agent does not have does not compile.
const unknown = await user.POST("/agents/{agent}", { params: { path: agent }, body: { jsonrpc: "2.0", id: 4, method: "GetTask", params: { id: calledId } } });
seen.unknown = unknown.data && "error" in unknown.data ? unknown.data.error.code : unknown.response.status;

const yaml = { "Content-Type": "application/yaml", Accept: "application/yaml" };
const current = await user.GET("/config", { headers: yaml, parseAs: "text" });
const save = (ifMatch: string, text: string) =>
  user.PUT("/config", { params: { header: { "If-Match": ifMatch } }, body: text, bodySerializer: (b) => b as string, headers: { "Content-Type": "application/yaml" } });
const configTag = current.response.headers.get("ETag")!;
seen.config = [(current.data as unknown) === config, must(await save(configTag, config + "# more\n")).revision, (await save(configTag, config)).response.status];

const refused = await user.PUT("/config", { body: { agents: { assistant: { llm: "nosuch" } } } });
seen.refused = [refused.response.status, refused.error?.error.details.errors?.map((problem) => problem.path)];

const document = { store: "manual", document: "guide/warranty.md" };
const uploaded = await user.PUT("/v1/document-stores/{store}/documents/{document}", {
  params: { path: document, header: { "X-Document-Title": "Warranty" } },
  body: "The warranty is two years.",
  bodySerializer: (b) => b,
  headers: { "Content-Type": "text/markdown" },
});
const content = await user.GET("/v1/document-stores/{store}/documents/{document}/content", { params: { path: document }, parseAs: "text" });
seen.uploaded = [uploaded.response.status, must(uploaded).outcome, content.data];

const shownApp = await operator.GET("/admin/apps/{app}", { params: { path: app } });
const tag = shownApp.response.headers.get("ETag")!;
const shown = must(shownApp);
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
