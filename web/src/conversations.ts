import { ApiError, get, isOver, type Call, type Part, type Task } from "./api";
import { Interrupted, Patience } from "./patience";
import { session } from "./session";
import { createStore } from "./store";
import { apply, emptyTimeline, readEvents, settled, withoutUnfinished, type Timeline } from "./timeline";

// Turn is a message and what the agent did for it.
export interface Turn {
  parts: Part[];
  call: Call;
  timeline: Timeline;
  streaming: boolean;
  error: unknown;
}

export interface Conversation {
  id: number;
  agent: string;
  turns: Turn[];
}

// OutgoingPart is a part of a message that is sent. data of a file is its content in base64.
export interface OutgoingPart {
  type: "text" | "file" | "data";
  text?: string;
  name?: string;
  mime_type?: string;
  data?: unknown;
}

// conversations live as long as the page, also while other screens are shown.
export const conversations = createStore<Conversation[]>([]);

// After a reload the tasks of the conversations are read again. Where the credential is kept for the tab, their ids are
// kept beside it, and no text.
const storageKey = "stoa.conversations";

interface Kept {
  id: number;
  agent: string;
  tasks: string[];
}

function keep() {
  try {
    const kept: Kept[] = conversations.get().map((c) => ({ id: c.id, agent: c.agent, tasks: [...new Set(c.turns.map((t) => t.timeline.task).filter(Boolean))] }));
    if (sessionStorage.getItem("stoa.session")) sessionStorage.setItem(storageKey, JSON.stringify(kept));
    else sessionStorage.removeItem(storageKey);
  } catch {
    // Without storage the conversations end with the page.
  }
}

conversations.subscribe(keep);

// resumeConversations shows what was kept, and follows the tasks that are still at work.
export function resumeConversations() {
  let kept: Kept[] = [];
  try {
    kept = JSON.parse(sessionStorage.getItem(storageKey) ?? "[]") as Kept[];
  } catch {
    return;
  }
  if (!session.get() || conversations.get().length > 0) return;
  lastId = Math.max(0, ...kept.map((c) => c.id));
  conversations.set(
    kept.map((c) => ({ ...c, turns: c.tasks.map((task) => ({ parts: [], call: subscription(c.agent, task, 0), timeline: { ...emptyTimeline, task }, streaming: true, error: null })) })),
  );
  for (const c of conversations.get()) {
    c.turns.forEach((turn, i) => {
      void get<Task>(`/tasks/${encodeURIComponent(turn.timeline.task)}`).then(
        (task) => update(c.id, i, (t) => ({ ...t, parts: task.history?.find((m) => m.role === "user")?.parts ?? [] })),
        (error: unknown) => update(c.id, i, (t) => ({ ...t, error })),
      );
      void run(c.id, i, turn.call);
    });
  }
}

const subscription = (agent: string, task: string, after: number): Call => ({ agent, method: "tasks/subscribe", params: { id: task, after, tool_results: true } });

let lastId = 0;
let streams = new AbortController();

export function newConversation(agent: string): Conversation {
  const c: Conversation = { id: ++lastId, agent, turns: [] };
  conversations.set([c, ...conversations.get()]);
  return c;
}

export function dropConversation(id: number) {
  conversations.set(conversations.get().filter((c) => c.id !== id));
}

// dropAll ends every stream and forgets every conversation: they belong to the session that ends.
export function dropAll() {
  streams.abort();
  streams = new AbortController();
  conversations.set([]);
}

// shown returns a part as the API shows it: without the content of a file.
function shown(part: OutgoingPart): Part {
  return part.type === "file" ? { type: "file", name: part.name ?? "", mime_type: part.mime_type ?? "" } : part;
}

function update(id: number, turn: number, change: (t: Turn) => Turn) {
  conversations.set(
    conversations.get().map((c) => (c.id === id ? { ...c, turns: c.turns.map((t, i) => (i === turn ? change(t) : t)) } : c)),
  );
}

const turnOf = (id: number, turn: number) => conversations.get().find((c) => c.id === id)?.turns[turn];

// sendMessage adds a turn and streams its answer until it has ended. A task that waits for a decision is followed
// further, since another person may decide it.
export async function sendMessage(id: number, parts: OutgoingPart[]) {
  const c = conversations.get().find((c) => c.id === id);
  if (!c) return;
  const before = c.turns.at(-1)?.timeline;
  const message: Record<string, unknown> = { message_id: crypto.randomUUID?.() ?? `console-${Date.now()}-${Math.random()}`, role: "user", parts };
  if (before?.context) message.context_id = before.context;
  // A task that asked something gets its answer.
  if (before?.task && before.state === "input_required") message.task_id = before.task;
  const call: Call = { agent: c.agent, method: "message:stream", params: { message, configuration: { tool_results: true } } };
  conversations.set(conversations.get().map((x) => (x.id === id ? { ...x, turns: [...x.turns, { parts: parts.map(shown), call, timeline: emptyTimeline, streaming: true, error: null }] } : x)));
  await run(id, c.turns.length, call);
}

// run applies the events of a call to a turn. A stream that breaks is continued after its last event.
async function run(id: number, turn: number, first: Call) {
  const signal = streams.signal;
  const patience = new Patience();
  for (let call = first; ; ) {
    let broken: unknown = null;
    try {
      await readEvents(call, signal, (events) => {
        patience.renew();
        update(id, turn, (t) => {
          const timeline = apply(t.timeline, events);
          return { ...t, timeline, streaming: !settled(timeline), error: null };
        });
      });
    } catch (error) {
      broken = error;
    }
    if (signal.aborted) return;
    const now = turnOf(id, turn)?.timeline;
    // A call that began no task may have been refused, or not: to send it again is the user's decision.
    const over = !now?.task || isOver(now.state) || (!broken && settled(now) && now.approvals.length === 0);
    if (over || !patience.allows(broken)) {
      update(id, turn, (t) => ({ ...t, streaming: false, error: now && isOver(now.state) ? null : broken }));
      return;
    }
    if (broken) update(id, turn, (t) => ({ ...t, error: new Interrupted() }));
    await patience.wait();
    if (signal.aborted) return;
    update(id, turn, (t) => ({ ...t, timeline: withoutUnfinished(t.timeline) }));
    call = subscription(first.agent, now.task, Number(now.lastId));
  }
}

// continueConversations follows the tasks whose streams ended when the session's credential was refused.
export function continueConversations() {
  for (const c of conversations.get()) {
    c.turns.forEach((turn, i) => {
      if (!(turn.error instanceof ApiError && turn.error.status === 401) || !turn.timeline.task) return;
      update(c.id, i, (t) => ({ ...t, error: null, streaming: true }));
      void run(c.id, i, subscription(c.agent, turn.timeline.task, Number(turn.timeline.lastId)));
    });
  }
}
