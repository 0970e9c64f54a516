import type { components } from "./openapi.d.ts";
import { session, type Session } from "./session";

type Schemas = components["schemas"];
export type Task = Schemas["Task"];
export type TaskList = Schemas["TaskList"];
export type Message = Schemas["Message"];
export type Part = Schemas["Part"];
export type Status = Schemas["Status"];
export type Approval = Schemas["Approval"];
export type Artifact = Schemas["Artifact"];
export type Card = Schemas["Card"];
export type CardList = Schemas["CardList"];
export type Decision = Schemas["Decision"];

// StreamEvent is an event of message:stream and tasks/subscribe (docs/api/extension.md).
export type StreamEvent = { task_id: string; context_id: string } & (
  | { type: "task.status_update"; status: Status }
  | { type: "task.artifact_update"; artifact: Artifact; append: boolean; last: boolean }
  | { type: "task.tool_result"; call_id: string; tool: string; text: string; failed: boolean; agent?: string }
);

export const isOver = (state: string) => ["completed", "failed", "cancelled", "rejected"].includes(state);
export const waits = (state: string) => state === "input_required" || state === "auth_required";

// ApiError is an answer that is no success, or the lack of one (status 0).
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly requestId: string,
    readonly retryAfter = "",
  ) {
    super(message);
  }

  // advice says what the user can do.
  get advice(): string {
    switch (this.status) {
      case 0:
        return "Check that the server runs and that this machine reaches it, then try again.";
      case 401:
        return "The credential is missing, wrong, expired or revoked. Sign in again.";
      case 403:
        return "The credential lacks a scope for this. Ask the app's administrator for a role that has it.";
      case 404:
        return "It does not exist, or belongs to somebody else. Check the name and the app you signed in to.";
      case 409:
        return "It has changed meanwhile. Reload to see its present state.";
      case 429:
        return this.retryAfter ? `Try again in ${this.retryAfter} seconds.` : "Wait a little, then try again.";
      default:
        return this.status >= 500
          ? "Try again. If it lasts, give the request id to the server's operator: the log has the cause."
          : "Change what you sent, then try again.";
    }
  }
}

// base is the path before every path of an app's API.
export function base(s: Session | null = session.get()): string {
  return s?.app ? `/apps/${encodeURIComponent(s.app)}` : "";
}

async function send(path: string, init: RequestInit, s: Session | null): Promise<Response> {
  const headers = new Headers(init.headers);
  if (s?.token) headers.set("Authorization", `Bearer ${s.token}`);
  if (init.body) headers.set("Content-Type", "application/json");
  let response: Response;
  try {
    response = await fetch(base(s) + path, { ...init, headers, credentials: "omit", redirect: "error", cache: "no-store" });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, "UNREACHABLE", "The server does not answer.", "");
  }
  if (response.ok) return response;
  const body = (await response.json().catch(() => null)) as { error?: { code?: unknown; message?: string } } | null;
  throw new ApiError(
    response.status,
    String(body?.error?.code ?? response.status),
    body?.error?.message ?? response.statusText,
    response.headers.get("X-Request-Id") ?? "",
    response.headers.get("Retry-After") ?? "",
  );
}

// get reads a path of the app's API. s is the session to use, for a credential that is only tried.
export async function get<T>(path: string, signal?: AbortSignal, s = session.get()): Promise<T> {
  return (await send(path, { signal: signal ?? null }, s)).json() as Promise<T>;
}

export async function post<T>(path: string, body?: unknown): Promise<T> {
  const init = body === undefined ? {} : { body: JSON.stringify(body) };
  return (await send(path, { method: "POST", ...init }, session.get())).json() as Promise<T>;
}

// decide approves or rejects a tool call that waits.
export function decide(task: string, approve: boolean, decision: Decision): Promise<Task> {
  return post<Task>(`/tasks/${encodeURIComponent(task)}/${approve ? "approve" : "reject"}`, decision);
}

export function cancelTask(task: string): Promise<Task> {
  return post<Task>(`/tasks/${encodeURIComponent(task)}/cancel`);
}

export function taskPath(filter: { status?: string; agent?: string; cursor?: string; size: number }): string {
  const query = new URLSearchParams({ page_size: String(filter.size) });
  if (filter.status) query.set("status", filter.status);
  if (filter.agent) query.set("agent", filter.agent);
  if (filter.cursor) query.set("page_token", filter.cursor);
  return `/tasks?${query}`;
}

export interface Call {
  agent: string;
  method: "message:stream" | "tasks/subscribe";
  params: object;
}

export function callBody(call: Call): string {
  return JSON.stringify({ jsonrpc: "2.0", id: 1, method: call.method, params: call.params });
}

// follow makes a call and yields its events with their ids, "" for pieces of unfinished text. It ends with the stream.
export async function* follow(call: Call, signal: AbortSignal): AsyncGenerator<{ id: string; event: StreamEvent }> {
  const response = await send(
    `/agents/${encodeURIComponent(call.agent)}`,
    { method: "POST", body: callBody(call), headers: { Accept: "text/event-stream" }, signal },
    session.get(),
  );
  const requestId = response.headers.get("X-Request-Id") ?? "";
  if (!response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
    raise(await response.json(), requestId);
    return;
  }
  let rest = "";
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        let id = "";
        let data = "";
        for (const line of block.split("\n")) {
          if (line.startsWith("id:")) id = line.slice(3).trim();
          else if (line.startsWith("data:")) data += line.slice(5);
        }
        if (!data) continue;
        const event: unknown = JSON.parse(data);
        raise(event, requestId);
        yield { id, event: event as StreamEvent };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// raise throws the error of a JSON-RPC answer.
function raise(body: unknown, requestId: string) {
  if (body && typeof body === "object" && "error" in body && body.error) {
    const { code, message } = body.error as { code?: unknown; message?: string };
    throw new ApiError(400, String(code ?? ""), message ?? "The call was refused.", requestId);
  }
}
