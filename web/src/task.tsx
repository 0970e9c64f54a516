import { Button, Group, Skeleton, Stack, Text, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { cancelTask, get, isOver, mostHistory, taskDetail, type Part, type Task as TaskBody } from "./api";
import { useMayCancel } from "./caller";
import { Notifications } from "./notifications";
import { ApprovalView, CancelCall, duration, Fold, Json, Parts, Problem, State, Time, ToolCallView } from "./parts";
import { Interrupted, Patience } from "./patience";
import { session } from "./session";
import { Steps } from "./steps";
import { joinLog, rawSteps, underWay, useTaskLog, type Activity } from "./tasklog";
import { apply, emptyTimeline, readEvents, withoutUnfinished, type Timeline } from "./timeline";

// Task is a task's page: facts, timeline, raw JSON.
export function Task() {
  const { task: id } = useParams({ from: "/tasks/$task" });
  const { find = "", view } = useSearch({ from: "/tasks/$task" });
  const navigate = useNavigate();
  const who = session.use();
  const cache = useQueryClient();
  const key = ["task", who, id];
  const task = useQuery({ queryKey: key, queryFn: ({ signal }) => get<TaskBody>(taskDetail(id), signal) });
  const reload = () => cache.invalidateQueries({ queryKey: key });
  const { timeline, error, read } = useTimeline(id, task.data?.agent ?? "");
  const { log, error: logError } = useTaskLog(id, timeline.lastId);
  const steps = useMemo(() => (view === "raw" ? rawSteps(log) : joinLog(timeline.entries, log)), [view, timeline.entries, log]);
  const search = (change: { find?: string; view?: string }) => {
    const next = { ...(find && { find }), ...(view && { view }), ...change };
    void navigate({ to: "/tasks/$task", params: { task: id }, search: { ...(next.find && { find: next.find }), ...(next.view && { view: next.view }) }, replace: true, resetScroll: false });
  };
  // The facts are read again when the stream shows another state.
  useEffect(() => {
    if (timeline.state && timeline.state !== task.data?.status.state) void cache.invalidateQueries({ queryKey: ["task", who, id] });
  }, [timeline.state, task.data?.status.state, cache, who, id]);
  const cancel = useMutation({ mutationFn: () => cancelTask(id), onSuccess: reload });
  const mayCancel = useMayCancel(task.data);
  if (task.isPending) return <Skeleton height={300} />;
  if (!task.data) return <Problem error={task.error} retry={() => void reload()} />;
  const { status, agent, context_id, approvals, credentials, history } = task.data;
  const usage = status.message?.metadata?.["tokens_used"] as { input?: number; output?: number } | undefined;
  const seconds = status.message?.metadata?.["execution_time"];
  const question = history?.find((m) => m.role === "user");
  const restored = question?.metadata?.["restored_from"] as { task_id?: unknown } | null | undefined;
  return (
    <Stack>
      <Group justify="space-between">
        <Group gap="xs">
          <Title order={2}>Task</Title>
          <State state={status.state} />
        </Group>
        {mayCancel && !isOver(status.state) && (
          <Button size="xs" color="red" variant="light" loading={cancel.isPending} onClick={() => cancel.mutate()}>
            Cancel the task
          </Button>
        )}
      </Group>
      <Problem error={cancel.error ?? task.error} />
      <dl className="facts">
        <dt>Id</dt>
        <dd className="mono">{id}</dd>
        <dt>Agent</dt>
        <dd>{agent && <Link to="/agents/$agent" params={{ agent }}>{agent}</Link>}</dd>
        <dt>Conversation</dt>
        <dd className="mono">{context_id}</dd>
        {typeof restored?.task_id === "string" && (
          <>
            <dt>Continues</dt>
            <dd className="mono">
              <Link to="/tasks/$task" params={{ task: restored.task_id }}>{restored.task_id}</Link>
            </dd>
          </>
        )}
        <dt>Last change</dt>
        <dd>
          <Time at={status.timestamp} />
        </dd>
        {usage && (
          <>
            <dt>Tokens</dt>
            <dd>
              {usage.input ?? 0} in, {usage.output ?? 0} out
            </dd>
          </>
        )}
        {typeof seconds === "number" && (
          <>
            <dt>Time at work</dt>
            <dd>{duration(seconds)}</dd>
          </>
        )}
      </dl>
      {approvals?.map((a) => <ApprovalView key={a.call_id} task={id} approval={a} onDecided={() => void reload()} />)}
      {!!credentials?.length && <Text>It waits for a credential of its owner, who can send one to the task.</Text>}
      <Group justify="space-between">
        <Title order={3} size="h4">
          Timeline
        </Title>
        <Button size="xs" variant="default" aria-pressed={view === "raw"} onClick={() => search({ view: view === "raw" ? "" : "raw" })}>
          Raw events
        </Button>
      </Group>
      {(history?.length ?? 0) < mostHistory ? question && <Question parts={question.parts} /> : <Fold title="First message">{() => <FirstMessage task={id} />}</Fold>}
      {read ? (
        <Steps
          entries={steps}
          restorable={mayCancel && (status.state === "failed" || status.state === "cancelled") ? id : ""}
          find={find}
          onFind={(text) => search({ find: text })}
        />
      ) : (
        !error && <Skeleton height={120} />
      )}
      {read && view !== "raw" && <UnderWay task={id} doing={underWay(timeline.state, steps, log)} mayCancel={mayCancel} />}
      <Problem error={error ?? logError} />
      {!!error && !read && <History task={task.data} />}
      <Notifications task={id} state={status.state} />
      <Fold title="Raw JSON">{() => <Json value={task.data} />}</Fold>
    </Stack>
  );
}

function Question({ parts }: { parts: Part[] }) {
  return (
    <div className="question">
      <Text size="xs" c="dimmed">
        Message
      </Text>
      <Parts parts={parts} />
    </div>
  );
}

// UnderWay shows what a task is doing, and for how long.
function UnderWay({ task, doing, mayCancel }: { task: string; doing: Activity[]; mayCancel: boolean }) {
  const [now, setNow] = useState(Date.now);
  const busy = doing.length > 0;
  useEffect(() => {
    if (!busy) return;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [busy]);
  return doing.slice(0, mostUnderWay).map(({ call, since }) => (
    <Group gap="xs" key={call?.id ?? ""} className="underway">
      <Text size="sm" c="dimmed">
        Under way: {call ? `the tool ${call.name}` : "the model"}, for {Math.max(0, Math.round((now - Date.parse(since)) / 1000))} s
      </Text>
      {mayCancel && call && <CancelCall task={task} call={call} />}
    </Group>
  ));
}

// mostUnderWay bounds the calls that are listed as under way.
const mostUnderWay = 20;

// FirstMessage reads the whole history of a long task for its first message.
function FirstMessage({ task }: { task: string }) {
  const who = session.use();
  const whole = useQuery({
    queryKey: ["question", who, task],
    queryFn: async ({ signal }) => (await get<TaskBody>(`/tasks/${encodeURIComponent(task)}`, signal)).history?.find((m) => m.role === "user")?.parts ?? [],
  });
  if (whole.isPending) return <Skeleton height={60} />;
  return whole.data ? <Question parts={whole.data} /> : <Problem error={whole.error} />;
}

// useTimeline reads the events of a task from its first and then as they happen. Its end is not awaited: read is true
// when the first event has arrived.
function useTimeline(id: string, agent: string) {
  const who = session.use();
  const [timeline, setTimeline] = useState<Timeline>(emptyTimeline);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    if (!agent) return;
    const stop = new AbortController();
    const patience = new Patience();
    let now = emptyTimeline;
    setTimeline(now);
    setError(null);
    const read = async () => {
      for (;;) {
        let broken: unknown = null;
        try {
          await readEvents({ agent, method: "tasks/subscribe", params: { id, after: Number(now.lastId), tool_results: true } }, stop.signal, (events) => {
            patience.renew();
            now = apply(now, events);
            setTimeline(now);
            setError(null);
          });
        } catch (e) {
          broken = e;
        }
        if (stop.signal.aborted || isOver(now.state)) return;
        if (!patience.allows(broken)) return setError(broken);
        if (broken) setError(new Interrupted());
        await patience.wait();
        if (stop.signal.aborted) return;
        now = withoutUnfinished(now);
      }
    };
    void read();
    return () => stop.abort();
    // Another credential may see more, or less.
  }, [id, agent, who]);
  return { timeline, error, read: timeline.lastId !== "" };
}

// History shows the messages of a task whose events cannot be read, such as one of an agent that exists no more.
function History({ task }: { task: TaskBody }) {
  return (
    <ol className="answer">
      {task.history?.map((m, i) => (
        <li key={i}>
          <Text size="xs" c="dimmed">
            {m.role}
          </Text>
          <Parts parts={m.parts} />
          {m.tool_calls?.map((c) => <ToolCallView key={c.id} call={{ id: c.id, name: c.function.name, arguments: c.function.arguments }} />)}
        </li>
      ))}
    </ol>
  );
}
