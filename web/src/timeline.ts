import { follow, isOver, waits, type Approval, type Call, type Message, type Part, type StreamEvent } from "./api";
import type { ToolCall } from "./parts";

// Entry is a step of a task as its stream shows it. seq is that of the event that it began with, 0 while that is not stored.
export type Entry = { at: string; seq: number } & (
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
  // places are where calls, messages and artifacts stand in entries, by kind and id: a search in them would make a task of
  // 10,000 events cost their square.
  places: ReadonlyMap<string, number>;
  // unfinished are the ids of messages of which pieces have come, and not yet the end.
  unfinished: ReadonlySet<string>;
  approvals: Approval[];
}

export const emptyTimeline: Timeline = { task: "", context: "", state: "", lastId: "", entries: [], places: new Map(), unfinished: new Set(), approvals: [] };

// settled says that the task does nothing until somebody sends or decides something.
export const settled = (t: Timeline) => isOver(t.state) || waits(t.state);

// Received is an event with its id, "" for a piece of unfinished text.
export interface Received {
  id: string;
  event: StreamEvent;
}

// callsUnderWay returns the calls of tools that a task at work waits for, as far as its stream shows: those after its last message
// that have no result.
export function callsUnderWay(entries: Entry[]): Extract<Entry, { kind: "call" }>[] {
  const last = entries.findLastIndex((e) => e.kind === "message" || e.kind === "state");
  return entries.slice(last + 1).flatMap((e) => (e.kind === "call" && e.call.result === undefined ? [e] : []));
}

// batchTime is how long events are gathered before they are shown, in milliseconds.
const batchTime = 50;

// readEvents makes a call and hands its events over, the first at once and the others several at a time: a page that drew
// itself after each would be busy for minutes with 10,000 of them. It returns at the end of the stream or of the task.
export async function readEvents(call: Call, signal: AbortSignal, take: (events: Received[]) => void) {
  let gathered: Received[] = [];
  let timer = 0;
  let last = 0;
  const hand = () => {
    clearTimeout(timer);
    timer = 0;
    last = performance.now();
    const events = gathered;
    gathered = [];
    if (events.length > 0 && !signal.aborted) take(events);
  };
  try {
    for await (const received of follow(call, signal)) {
      gathered.push(received);
      if (performance.now() - last > batchTime && timer === 0) hand();
      else timer ||= window.setTimeout(hand, batchTime);
      if (received.event.type === "task.status_update" && isOver(received.event.status.state)) return;
    }
  } finally {
    hand();
  }
}

// apply adds events to a timeline.
export function apply(t: Timeline, events: Received[]): Timeline {
  const next = { ...t, entries: [...t.entries], places: new Map(t.places), unfinished: new Set(t.unfinished) };
  for (const { id, event } of events) add(next, id, event);
  return next;
}

// withoutUnfinished returns a timeline without the pieces of messages whose end has not come. A stream that is continued sends
// them again from their beginning, and a process that takes over from one that died writes the message under another id.
export function withoutUnfinished(t: Timeline): Timeline {
  if (t.unfinished.size === 0) return t;
  const entries = t.entries.filter((e) => e.kind !== "message" || !t.unfinished.has(e.id));
  const places = new Map(entries.flatMap((e, i) => (e.kind === "state" ? [] : [[keyOf(e), i] as const])));
  return { ...t, entries, places, unfinished: new Set() };
}

type Growing = Timeline & { places: Map<string, number>; unfinished: Set<string> };

const keyOf = (e: Exclude<Entry, { kind: "state" }>) => `${e.kind} ${e.kind === "call" ? e.call.id : e.id}`;

function add(t: Growing, id: string, event: StreamEvent) {
  // A stream that was continued may repeat stored events.
  if (id && t.lastId && Number(id) <= Number(t.lastId)) return;
  t.task = event.task_id;
  t.context = event.context_id || t.context;
  t.lastId = id || t.lastId;
  const at = event.type === "task.status_update" ? event.status.timestamp : "";
  const seq = Number(id);
  switch (event.type) {
    case "task.tool_result": {
      const found = find(t, "call", event.call_id);
      const call = { id: event.call_id, name: event.tool, arguments: "", ...found?.call, result: event.text, failed: event.failed };
      put(t, event.call_id, { at: found?.at ?? at, seq: found?.seq ?? seq, kind: "call", call });
      break;
    }
    case "task.artifact_update": {
      const { artifact, append } = event;
      const found = find(t, "artifact", artifact.artifact_id);
      const parts = append && found ? [...found.parts, ...artifact.parts] : artifact.parts;
      put(t, artifact.artifact_id, { at, seq: found?.seq ?? seq, kind: "artifact", id: artifact.artifact_id, name: artifact.name ?? "", parts });
      break;
    }
    case "task.status_update": {
      const { state, message } = event.status;
      const changed = state !== t.state;
      t.state = state;
      t.approvals = waits(state) ? approvalsOf(message) : [];
      if (message) addMessage(t, message, at, state !== "working", seq);
      if (settled(t)) Object.assign(t, withoutUnfinished(t));
      if (changed) t.entries.push({ at, seq, kind: "state", state });
      break;
    }
  }
}

// find returns the entry of a kind and id.
function find<K extends "call" | "message" | "artifact">(t: Timeline, kind: K, id: string): Extract<Entry, { kind: K }> | undefined {
  const entry = id === "" ? undefined : t.entries[t.places.get(`${kind} ${id}`) ?? -1];
  return entry as Extract<Entry, { kind: K }> | undefined;
}

// put replaces the entry of its kind and id, or adds it.
function put(t: Growing, id: string, entry: Exclude<Entry, { kind: "state" }>) {
  const key = keyOf(entry);
  const place = id === "" ? undefined : t.places.get(key);
  if (place !== undefined) {
    t.entries[place] = entry;
    return;
  }
  if (id !== "") t.places.set(key, t.entries.length);
  t.entries.push(entry);
}

// addMessage adds text and calls. The text of a working task is what is new of a message; that of a later state (whole)
// replaces what was shown of the message. Events that are stored (seq is not 0) end it.
function addMessage(t: Growing, message: Message, at: string, whole: boolean, seq: number) {
  // The text beside an approval repeats its prompt.
  const parts = message.parts.some(isApproval) ? [] : message.parts;
  const id = message.message_id ?? "";
  if (seq) t.unfinished.delete(id);
  else if (id !== "") t.unfinished.add(id);
  if (parts.length > 0) {
    const found = find(t, "message", id);
    put(t, id, found ? { ...found, seq: found.seq || seq, parts: whole ? parts : join(found.parts, parts) } : { at, seq, kind: "message", id, parts });
  }
  for (const c of message.tool_calls ?? []) {
    if (!find(t, "call", c.id)) put(t, c.id, { at, seq, kind: "call", call: { id: c.id, name: c.function.name, arguments: c.function.arguments } });
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
