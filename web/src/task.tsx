import { Button, Group, Skeleton, Stack, Text, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { ApiError, cancelTask, follow, get, isOver, type Task as TaskBody } from "./api";
import { ApprovalView, Json, Parts, Problem, State, Time, ToolCallView } from "./parts";
import { session } from "./session";
import { apply, emptyTimeline, type Timeline } from "./timeline";
import { TimelineView } from "./timelineview";

// shownSteps bounds how many steps a page draws at once.
const shownSteps = 500;

// Task is a task's page: facts, timeline, raw JSON.
export function Task() {
  const { task: id } = useParams({ from: "/tasks/$task" });
  const who = session.use();
  const cache = useQueryClient();
  const key = ["task", who, id];
  const task = useQuery({ queryKey: key, queryFn: ({ signal }) => get<TaskBody>(`/tasks/${encodeURIComponent(id)}`, signal) });
  const reload = () => cache.invalidateQueries({ queryKey: key });
  const { timeline, error, read } = useTimeline(id, task.data?.agent ?? "");
  const [all, setAll] = useState(false);
  // The facts are read again when the stream shows another state.
  useEffect(() => {
    if (timeline.state && timeline.state !== task.data?.status.state) void cache.invalidateQueries({ queryKey: ["task", who, id] });
  }, [timeline.state, task.data?.status.state, cache, who, id]);
  const cancel = useMutation({ mutationFn: () => cancelTask(id), onSuccess: reload });
  if (task.isPending) return <Skeleton height={300} />;
  if (!task.data) return <Problem error={task.error} retry={() => void reload()} />;
  const { status, agent, context_id, approvals, credentials, history } = task.data;
  const usage = status.message?.metadata?.["tokens_used"] as { input?: number; output?: number } | undefined;
  const seconds = status.message?.metadata?.["execution_time"];
  const question = history?.find((m) => m.role === "user");
  const steps = timeline.entries;
  return (
    <Stack>
      <Group justify="space-between">
        <Group gap="xs">
          <Title order={2}>Task</Title>
          <State state={status.state} />
        </Group>
        {!isOver(status.state) && (
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
            <dd>{seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`}</dd>
          </>
        )}
      </dl>
      {approvals?.map((a) => <ApprovalView key={a.call_id} task={id} approval={a} onDecided={() => void reload()} />)}
      {!!credentials?.length && <Text>It waits for a credential of its owner, who can send one to the task.</Text>}
      <Title order={3} size="h4">
        Timeline
      </Title>
      {question && (
        <div className="question">
          <Text size="xs" c="dimmed">
            Message
          </Text>
          <Parts parts={question.parts} />
        </div>
      )}
      {!all && steps.length > shownSteps && (
        <Button variant="default" size="xs" onClick={() => setAll(true)}>
          Show {steps.length - shownSteps} earlier steps
        </Button>
      )}
      {read ? <TimelineView entries={all ? steps : steps.slice(-shownSteps)} states /> : !error && <Skeleton height={120} />}
      {!!error && (
        <>
          <Problem error={error} />
          <History task={task.data} />
        </>
      )}
      <details>
        <summary>Raw JSON</summary>
        <Json value={task.data} />
      </details>
    </Stack>
  );
}

// useTimeline reads the events of a task from its first and then as they happen. Its end is not awaited: read is true
// when the first event has arrived.
function useTimeline(id: string, agent: string) {
  const [timeline, setTimeline] = useState<Timeline>(emptyTimeline);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    if (!agent) return;
    const stop = new AbortController();
    let now = emptyTimeline;
    setTimeline(now);
    setError(null);
    const read = async () => {
      for (let failures = 0; failures < 5 && !isOver(now.state); failures++) {
        try {
          for await (const { id: eventId, event } of follow({ agent, method: "tasks/subscribe", params: { id, after: Number(now.lastId), tool_results: true } }, stop.signal)) {
            failures = 0;
            now = apply(now, eventId, event);
            setTimeline(now);
          }
        } catch (e) {
          if (stop.signal.aborted) return;
          if ((e instanceof ApiError && e.status !== 0) || failures === 4) return setError(e);
        }
        await new Promise((resolve) => setTimeout(resolve, 500));
        if (stop.signal.aborted) return;
      }
    };
    void read();
    return () => stop.abort();
  }, [id, agent]);
  return { timeline, error, read: timeline.lastId !== "" };
}

// History shows the messages of a task whose events cannot be read, such as one of an agent that exists no more.
function History({ task }: { task: TaskBody }) {
  return (
    <ol className="timeline">
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
