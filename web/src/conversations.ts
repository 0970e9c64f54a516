import { ApiError, follow, isOver, type Call } from "./api";
import { createStore } from "./store";
import { apply, emptyTimeline, settled, type Timeline } from "./timeline";

// Turn is a message and what the agent did for it.
export interface Turn {
  text: string;
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

// conversations live as long as the page, also while other screens are shown.
export const conversations = createStore<Conversation[]>([]);

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

function update(id: number, turn: number, change: (t: Turn) => Turn) {
  conversations.set(
    conversations.get().map((c) => (c.id === id ? { ...c, turns: c.turns.map((t, i) => (i === turn ? change(t) : t)) } : c)),
  );
}

const turnOf = (id: number, turn: number) => conversations.get().find((c) => c.id === id)?.turns[turn];

// sendMessage adds a turn and streams its answer until it has ended. A task that waits for a decision is followed
// further, since another person may decide it.
export async function sendMessage(id: number, text: string) {
  const c = conversations.get().find((c) => c.id === id);
  if (!c) return;
  const before = c.turns.at(-1)?.timeline;
  const message: Record<string, unknown> = { message_id: crypto.randomUUID?.() ?? `console-${Date.now()}-${Math.random()}`, role: "user", parts: [{ type: "text", text }] };
  if (before?.context) message.context_id = before.context;
  // A task that asked something gets its answer.
  if (before?.task && before.state === "input_required") message.task_id = before.task;
  const call: Call = { agent: c.agent, method: "message:stream", params: { message, configuration: { tool_results: true } } };
  conversations.set(conversations.get().map((x) => (x.id === id ? { ...x, turns: [...x.turns, { text, call, timeline: emptyTimeline, streaming: true, error: null }] } : x)));
  await run(id, c.turns.length, call);
}

// run applies the events of a call to a turn. A stream that breaks is continued after its last event.
async function run(id: number, turn: number, first: Call) {
  const signal = streams.signal;
  let call = first;
  for (let failures = 0; ; ) {
    try {
      for await (const { id: eventId, event } of follow(call, signal)) {
        failures = 0;
        update(id, turn, (t) => {
          const timeline = apply(t.timeline, eventId, event);
          return { ...t, timeline, streaming: !settled(timeline) };
        });
        if (isOver(turnOf(id, turn)?.timeline.state ?? "failed")) break;
      }
      failures++;
    } catch (error) {
      if (signal.aborted) return;
      // An answer of the server is final; a connection that broke is not.
      if ((error instanceof ApiError && error.status !== 0) || ++failures > 5 || !turnOf(id, turn)?.timeline.task) {
        update(id, turn, (t) => ({ ...t, streaming: false, error }));
        return;
      }
    }
    const now = turnOf(id, turn)?.timeline;
    if (!now?.task || isOver(now.state) || (settled(now) && now.approvals.length === 0) || failures > 5) {
      update(id, turn, (t) => ({ ...t, streaming: false }));
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, Math.min(200 * failures, 2000)));
    call = { agent: first.agent, method: "tasks/subscribe", params: { id: now.task, after: Number(now.lastId), tool_results: true } };
  }
}
