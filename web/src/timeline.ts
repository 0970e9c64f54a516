import { isOver, waits, type Approval, type Message, type Part, type StreamEvent } from "./api";
import type { ToolCall } from "./parts";

// Entry is a step of a task as its stream shows it.
export type Entry = { at: string } & (
  | { kind: "state"; state: string }
  | { kind: "message"; id: string; parts: Part[] }
  | { kind: "call"; call: ToolCall }
  | { kind: "artifact"; id: string; name: string; parts: Part[] }
);

// Timeline is what the events of a task have shown so far. Functions here return a new value and change none.
export interface Timeline {
  task: string;
  context: string;
  state: string;
  // lastId is the id of the last stored event: a stream continues after it.
  lastId: string;
  entries: Entry[];
  approvals: Approval[];
}

export const emptyTimeline: Timeline = { task: "", context: "", state: "", lastId: "", entries: [], approvals: [] };

// settled says that the task does nothing until somebody sends or decides something.
export const settled = (t: Timeline) => isOver(t.state) || waits(t.state);

export function apply(t: Timeline, id: string, event: StreamEvent): Timeline {
  // A stream that was continued may repeat stored events.
  if (id && t.lastId && Number(id) <= Number(t.lastId)) return t;
  const next: Timeline = { ...t, task: event.task_id, context: event.context_id || t.context, lastId: id || t.lastId, entries: [...t.entries] };
  const at = event.type === "task.status_update" ? event.status.timestamp : "";
  switch (event.type) {
    case "task.tool_result": {
      const i = next.entries.findLastIndex((e) => e.kind === "call" && e.call.id === event.call_id);
      const found = next.entries[i];
      const call = { id: event.call_id, name: event.tool, arguments: "", ...(found?.kind === "call" ? found.call : {}), result: event.text, failed: event.failed };
      if (i < 0) next.entries.push({ at, kind: "call", call });
      else next.entries[i] = { at: found!.at, kind: "call", call };
      break;
    }
    case "task.artifact_update": {
      const { artifact, append } = event;
      const i = next.entries.findIndex((e) => e.kind === "artifact" && e.id === artifact.artifact_id);
      const found = next.entries[i];
      const parts = append && found?.kind === "artifact" ? [...found.parts, ...artifact.parts] : artifact.parts;
      const entry: Entry = { at, kind: "artifact", id: artifact.artifact_id, name: artifact.name ?? "", parts };
      if (i < 0) next.entries.push(entry);
      else next.entries[i] = entry;
      break;
    }
    case "task.status_update": {
      const { state, message } = event.status;
      const changed = state !== t.state;
      next.state = state;
      next.approvals = waits(state) ? approvalsOf(message) : [];
      if (message) addMessage(next.entries, message, at, state !== "working");
      if (changed) next.entries.push({ at, kind: "state", state });
      break;
    }
  }
  return next;
}

// addMessage adds text and calls. The text of a working task is what is new of a message; that of a later state (whole)
// replaces what was shown of the message.
function addMessage(entries: Entry[], message: Message, at: string, whole: boolean) {
  // The text beside an approval repeats its prompt.
  const parts = message.parts.some(isApproval) ? [] : message.parts;
  const id = message.message_id ?? "";
  if (parts.length > 0) {
    const i = entries.findLastIndex((e) => e.kind === "message" && e.id === id && id !== "");
    const found = entries[i];
    if (found?.kind === "message") entries[i] = { ...found, parts: whole ? parts : join(found.parts, parts) };
    else entries.push({ at, kind: "message", id, parts });
  }
  for (const c of message.tool_calls ?? []) {
    if (!entries.some((e) => e.kind === "call" && e.call.id === c.id)) {
      entries.push({ at, kind: "call", call: { id: c.id, name: c.function.name, arguments: c.function.arguments } });
    }
  }
}

function join(before: Part[], more: Part[]): Part[] {
  const last = before.at(-1);
  const [first, ...others] = more;
  if (last?.type !== "text" || first?.type !== "text") return [...before, ...more];
  return [...before.slice(0, -1), { ...last, text: (last.text ?? "") + (first.text ?? "") }, ...others];
}

function isApproval(part: Part): boolean {
  return part.type === "data" && !!part.data && typeof part.data === "object" && "type" in part.data && part.data.type === "tool_approval";
}

function approvalsOf(message: Message | undefined): Approval[] {
  return (message?.parts ?? []).filter(isApproval).map((p) => p.data as Approval);
}
