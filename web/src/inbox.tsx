import { Group, Skeleton, Stack, Text, Title } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { get, taskPath, type Task, type TaskList } from "./api";
import { has, useCaller, useMay } from "./caller";
import { ApprovalView, Empty, Problem, Time } from "./parts";
import { session } from "./session";

// mostWaiting is how many waiting tasks are read at a time; what is decided makes room for more.
const mostWaiting = 100;

// useInbox reads the tasks with tool calls that wait for a decision.
export function useInbox() {
  const who = session.use();
  const may = useMay("tasks:approve");
  return useQuery({
    queryKey: ["inbox", who],
    queryFn: ({ signal }) => get<TaskList>(taskPath({ status: "input_required", size: mostWaiting }), signal),
    select: (list) => ({ waiting: list.tasks.filter((t) => t.approvals?.length), more: list.next_page_token !== "" }),
    // What waits, waits for those who may decide.
    enabled: !!who && may,
    refetchInterval: 5000,
    // The tab's title has the count also while another tab is in front.
    refetchIntervalInBackground: true,
  });
}

const askedAt = (task: Task) => task.approvals?.[0]?.requested_at ?? task.status.timestamp;

// addApprovals adds a task to tasks. One of which a call was decided may wait for others.
function addApprovals(tasks: Task[], task: Task): Task[] {
  const before = tasks.find((t) => t.task_id === task.task_id);
  if (!before) return [...tasks, task];
  const more = task.approvals?.filter((a) => !before.approvals?.some((b) => b.call_id === a.call_id)) ?? [];
  return tasks.map((t) => (t === before ? { ...t, approvals: [...(t.approvals ?? []), ...more] } : t));
}

// Inbox shows the longest wait first, so that what arrives comes last, and what was decided keeps its place: nothing moves under the
// pointer of somebody who is about to decide.
export function Inbox() {
  const { data, error, refetch, isPending } = useInbox();
  const caller = useCaller();
  const mayNot = !!caller.data && !has(caller.data, "tasks:approve");
  const cache = useQueryClient();
  const [decided, setDecided] = useState<Task[]>([]);
  const onDecided = (task: Task) => {
    setDecided((before) => [...before.filter((t) => t.task_id !== task.task_id), task]);
    void cache.invalidateQueries({ queryKey: ["inbox"] });
  };
  const all = [...decided, ...(data?.waiting ?? [])].reduce(addApprovals, []).sort((a, b) => askedAt(a).localeCompare(askedAt(b)));
  return (
    <Stack>
      <Title order={2}>Inbox</Title>
      <Problem error={error} retry={() => void refetch()} />
      {isPending && !mayNot && <Skeleton height={160} />}
      {mayNot && <Text>Who decides on tool calls needs the scope tasks:approve. Ask the app's administrator for a role that has it.</Text>}
      {data && all.length === 0 && (
        <Empty title="Nothing waits for you" command={"tools:\n  pay:\n    require_approval: true"}>
          Tool calls that need a decision appear here. A tool needs one with:
        </Empty>
      )}
      {all.map((task) => (
        <article key={task.task_id}>
          <Stack gap="xs">
            <Group gap="xs">
              <Text fw={600}>{task.agent}</Text>
              <Text size="sm" c="dimmed">
                asked <Time at={askedAt(task)} />
              </Text>
              <Link to="/tasks/$task" params={{ task: task.task_id }}>
                Task
              </Link>
            </Group>
            {task.opening && (
              <Text size="sm" className="text" lineClamp={4}>
                Request: {task.opening}
              </Text>
            )}
            {task.approvals?.map((a) => <ApprovalView key={a.call_id} task={task.task_id} approval={a} onDecided={() => onDecided(task)} />)}
          </Stack>
        </article>
      ))}
      {data?.more && <Text c="dimmed">More wait. They appear as these are decided.</Text>}
    </Stack>
  );
}
