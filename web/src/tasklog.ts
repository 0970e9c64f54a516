// The log of a task: what its stream does not show.
import { useEffect, useRef, useState } from "react";
import { get, type Schema } from "./api";
import type { ToolCall } from "./parts";
import { session } from "./session";
import type { Entry } from "./timeline";

export type LogEntry = Schema["LogEntry"];

// Fact is a step that the log alone has, or an event as the API shows it.
export type Fact = { at: string; seq: number } & (
  | { kind: "model_call"; call: NonNullable<LogEntry["model_call"]>; agent: string }
  | { kind: "finding"; finding: NonNullable<LogEntry["finding"]> }
  | { kind: "checkpoint"; checkpoint: NonNullable<LogEntry["checkpoint"]> }
  | { kind: "attempt"; attempt: NonNullable<LogEntry["attempt"]> }
  | { kind: "decision"; decision: NonNullable<LogEntry["decision"]> }
  | { kind: "citations"; list: Citation[] }
  | { kind: "raw"; value: LogEntry }
);

export type Step = Entry | Fact;

// Citation is a passage of a document that an answer refers to.
export interface Citation {
  n: number;
  store: string;
  document: string;
  quote: string;
  title?: string;
  heading?: string;
  page?: number;
  url?: string;
}

// pageSize is how many entries are read at a time, pause how long the log is left alone between two reads, in milliseconds: a task at
// work adds entries all the time.
const pageSize = 1000;
const pause = 500;

// useTaskLog reads the log of a task as far as its stream has come: lastId is the id of the last event there.
export function useTaskLog(id: string, lastId: string): { log: LogEntry[]; error: unknown } {
  const who = session.use();
  const [log, setLog] = useState<LogEntry[]>([]);
  const [error, setError] = useState<unknown>(null);
  const wanted = useRef(0);
  const wake = useRef(() => {});
  useEffect(() => {
    wanted.current = Number(lastId);
    wake.current();
  }, [lastId]);
  useEffect(() => {
    const stop = new AbortController();
    const sleep = (time: number) =>
      new Promise<void>((resolve) => {
        if (time) setTimeout(resolve, time);
        else wake.current = resolve;
        stop.signal.addEventListener("abort", () => resolve(), { once: true });
      });
    let all: LogEntry[] = [];
    let position = 0;
    setLog(all);
    setError(null);
    const read = async () => {
      while (!stop.signal.aborted) {
        const until = wanted.current;
        if (position >= until) {
          await sleep(0);
          continue;
        }
        try {
          const page = await get<Schema["TaskLog"]>(`/tasks/${encodeURIComponent(id)}/log?page_size=${pageSize}&after=${position}`, stop.signal);
          all = [...all, ...page.entries];
          position = page.next_page_token ? Number(page.next_page_token) : Math.max(until, all.at(-1)?.seq ?? 0);
          setLog(all);
          setError(null);
          if (!page.next_page_token) await sleep(pause);
        } catch (e) {
          if (stop.signal.aborted) return;
          setError(e);
          await sleep(10 * pause);
        }
      }
    };
    void read();
    return () => stop.abort();
  }, [id, who]);
  return { log, error };
}

// joinLog returns the steps of a stream together with what the log alone has, in their order. What is not stored yet comes last.
export function joinLog(entries: Entry[], log: LogEntry[]): Step[] {
  const seconds = new Map<string, number | undefined>();
  const decisions = new Map<string, string>();
  const facts: Fact[] = [];
  for (const e of log) {
    if (e.tool_result) seconds.set(e.tool_result.call_id, e.tool_result.seconds);
    if (e.decision) decisions.set(e.decision.call_id, outcomes[e.decision.outcome]);
    const fact = factOf(e);
    if (fact) facts.push(fact);
  }
  const steps: Step[] = [];
  let next = 0;
  for (const e of entries) {
    // A state is the last that its event says: what was recorded with it comes before.
    const before = e.seq === 0 ? Infinity : e.seq;
    while (next < facts.length && facts[next]!.seq < before) steps.push(facts[next++]!);
    if (e.kind !== "call" || (!seconds.has(e.call.id) && !decisions.has(e.call.id))) {
      steps.push(e);
      continue;
    }
    const known = { ended: seconds.has(e.call.id), seconds: seconds.get(e.call.id), decision: decisions.get(e.call.id) };
    const call = { ...e.call, ended: known.ended };
    if (known.seconds !== undefined) call.seconds = known.seconds;
    if (known.decision) call.decision = known.decision;
    steps.push({ ...e, call });
  }
  return [...steps, ...facts.slice(next)];
}

const outcomes = { approve: "approved", reject: "rejected", expire: "expired", supply: "credential supplied" } as const;

// factOf returns the step of an entry that the stream does not show, null for the others.
function factOf(e: LogEntry): Fact | null {
  const { at, seq } = e;
  if (e.model_call) return { at, seq, kind: "model_call", call: e.model_call, agent: e.agent ?? "" };
  if (e.finding) return { at, seq, kind: "finding", finding: e.finding };
  if (e.checkpoint) return { at, seq, kind: "checkpoint", checkpoint: e.checkpoint };
  if (e.attempt) return { at, seq, kind: "attempt", attempt: e.attempt };
  if (e.decision) return { at, seq, kind: "decision", decision: e.decision };
  const citations = e.status?.message?.metadata?.["citations"];
  return Array.isArray(citations) && citations.length > 0 ? { at, seq, kind: "citations", list: citations as unknown as Citation[] } : null;
}

// rawSteps returns the entries of a log as they came.
export function rawSteps(log: LogEntry[]): Step[] {
  return log.map((value) => ({ at: value.at, seq: value.seq, kind: "raw", value }));
}

// Activity is what a task is doing since a time: a call of a tool, or else of a model.
export interface Activity {
  since: string;
  call?: ToolCall;
}

// underWay returns what a task is doing.
export function underWay(state: string, steps: Step[], log: LogEntry[]): Activity[] {
  if (state !== "working") return [];
  const calls = steps.flatMap((s) => (s.kind === "call" && s.call.result === undefined && !s.call.ended ? [{ call: s.call, since: s.at }] : []));
  if (calls.length > 0) return calls;
  const since = log.at(-1)?.at ?? steps.findLast((s) => s.at)?.at ?? "";
  return since ? [{ since }] : [];
}
