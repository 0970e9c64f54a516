import type { components } from "./openapi.d.ts";
import { saveBlob } from "./csv";
import { refuse, refused, session, type Session } from "./session";

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
export type Schema = { [name in keyof Schemas]: Schemas[name] };

// ConfigProblem is what is wrong with a configuration, or has no effect in it, at its place.
export interface ConfigProblem {
  path: string;
  line: number;
  column: number;
  message: string;
  suggestion?: string;
}

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
    // problems are all errors of a configuration that was refused.
    readonly problems: ConfigProblem[] = [],
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
        return this.code === "ALREADY_EXISTS" ? "Choose another name." : "It has changed meanwhile. Reload to see its present state.";
      case 412:
        return "Its present state does not allow this, or it has changed meanwhile. Compare with the present state, then try again.";
      case 413:
        return "Send less at a time.";
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
  // A credential that was refused is not sent again.
  if (refused.get() && s && s === session.get()) throw newError(401, "", "", "");
  const headers = new Headers(init.headers);
  if (s?.token) headers.set("Authorization", `Bearer ${s.token}`);
  if (init.body && !headers.has("Content-Type")) headers.set("Content-Type", "application/json");
  let response: Response;
  try {
    response = await fetch(base(s) + path, { ...init, headers, credentials: "omit", redirect: "error", cache: "no-store" });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, "UNREACHABLE", "The server does not answer.", "");
  }
  if (response.ok) return response;
  if (response.status === 401 && s) refuse(s);
  const retryAfter = response.headers.get("Retry-After") ?? "";
  throw newError(response.status, await response.text().catch(() => ""), response.headers.get("X-Request-Id") ?? "", retryAfter);
}

// newError reads an answer that is no success.
function newError(status: number, text: string, requestId: string, retryAfter: string): ApiError {
  let error: { code?: unknown; message?: string; details?: { errors?: ConfigProblem[] } } = {};
  try {
    error = (JSON.parse(text) as { error?: typeof error }).error ?? {};
  } catch {
    // A proxy answers in its own form.
  }
  return new ApiError(status, String(error.code ?? status), error.message ?? `The server answered ${status}.`, requestId, retryAfter, error.details?.errors ?? []);
}

// get reads a path of the app's API. s is the session to use, for a credential that is only tried.
export async function get<T>(path: string, signal?: AbortSignal, s = session.get()): Promise<T> {
  return (await send(path, { signal: signal ?? null }, s)).json() as Promise<T>;
}

export async function post<T>(path: string, body?: unknown): Promise<T> {
  return change<T>("POST", path, body === undefined ? {} : { json: body });
}

// Change is what a call that changes something sends.
export interface Change {
  json?: unknown;
  yaml?: string;
  // ifMatch is the ETag of what is changed; "" = whatever it is.
  ifMatch?: string;
  signal?: AbortSignal;
}

// change sends a call that changes something, and returns its answer, null where it has none.
export async function change<T>(method: "POST" | "PUT" | "PATCH" | "DELETE", path: string, { json, yaml, ifMatch, signal }: Change = {}): Promise<T> {
  const headers = new Headers();
  if (ifMatch) headers.set("If-Match", ifMatch);
  const init: RequestInit = { method, headers, signal: signal ?? null };
  if (json !== undefined) init.body = JSON.stringify(json);
  if (yaml !== undefined) {
    headers.set("Content-Type", "application/yaml");
    init.body = yaml;
  }
  const text = await (await send(path, init, session.get())).text();
  return (text === "" ? null : JSON.parse(text)) as T;
}

// Text is a text with the ETag of its state.
export interface Text {
  text: string;
  etag: string;
}

// getText reads a text in the given media type.
export async function getText(path: string, mediaType: string, signal?: AbortSignal): Promise<Text> {
  const response = await send(path, { headers: { Accept: mediaType }, signal: signal ?? null }, session.get());
  return { text: await response.text(), etag: response.headers.get("ETag") ?? "" };
}

// download saves an answer as a file of the user's. A link could not send the credential.
export async function download(path: string, name: string): Promise<void> {
  const blob = await (await send(path, {}, session.get())).blob();
  saveBlob(name, blob);
}

// uploadFile sends a file, and reports how much of it was sent, from 0 to 1. Only this older interface reports that.
export function uploadFile<T>(path: string, file: File, progress: (part: number) => void, signal: AbortSignal): Promise<T> {
  const s = session.get();
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", base(s) + path);
    if (s?.token) request.setRequestHeader("Authorization", `Bearer ${s.token}`);
    request.setRequestHeader("Content-Type", file.type || "application/octet-stream");
    request.upload.onprogress = (e) => e.lengthComputable && progress(e.loaded / e.total);
    request.onload = () => {
      if (request.status >= 200 && request.status < 300) return resolve(JSON.parse(request.responseText) as T);
      if (request.status === 401 && s) refuse(s);
      reject(newError(request.status, request.responseText, request.getResponseHeader("X-Request-Id") ?? "", request.getResponseHeader("Retry-After") ?? ""));
    };
    request.onerror = () => reject(new ApiError(0, "UNREACHABLE", "The server does not answer, or ended the upload.", ""));
    request.onabort = () => reject(new ApiError(0, "CANCELLED", "The upload was cancelled.", ""));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}

// decide approves or rejects a tool call that waits.
export function decide(task: string, approve: boolean, decision: Decision): Promise<Task> {
  return post<Task>(`/tasks/${encodeURIComponent(task)}/${approve ? "approve" : "reject"}`, decision);
}

export function cancelTask(task: string): Promise<Task> {
  return post<Task>(`/tasks/${encodeURIComponent(task)}/cancel`);
}

export function cancelCall(task: string, call: string): Promise<unknown> {
  return post(`/api/tasks/${encodeURIComponent(task)}/toolCalls/${encodeURIComponent(call)}/cancel`);
}

// mostHistory is how many messages of a task are read with it: its timeline has them all.
export const mostHistory = 100;

export const taskDetail = (task: string) => `/tasks/${encodeURIComponent(task)}?history_length=${mostHistory}`;

// TaskSearch is what selects tasks; cursor is the page.
export interface TaskSearch {
  status?: string;
  agent?: string;
  since?: string;
  until?: string;
  text?: string;
  cursor?: string;
}

export function taskPath({ cursor, size, ...filter }: TaskSearch & { size: number }): string {
  const query = new URLSearchParams({ page_size: String(size) });
  for (const [name, value] of Object.entries(filter)) if (value) query.set(name, value);
  if (cursor) query.set("page_token", cursor);
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
