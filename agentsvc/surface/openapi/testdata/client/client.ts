// Does with the generated client what most users of the API do, and prints what it saw as JSON.
import createClient from "openapi-fetch";
import type { paths } from "./api.js";

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
const created = must(
  await operator.POST("/admin/apps", {
    params: { header: { "Idempotency-Key": "create-shop" } },
    body: { name: app.app, config: "llms: {m: {provider: scripted}}\nagents: {assistant: {llm: m}}\n", labels: { tier: "free" } },
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
