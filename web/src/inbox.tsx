import { Group, Skeleton, Stack, Text, Title } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { get, taskPath, type TaskList } from "./api";
import { ApprovalView, Empty, Problem, Time } from "./parts";
import { session } from "./session";

// mostWaiting is how many waiting tasks are read at a time; what is decided makes room for more.
const mostWaiting = 100;

// useInbox reads the tasks with tool calls that wait for a decision.
export function useInbox() {
  const who = session.use();
  return useQuery({
    queryKey: ["inbox", who],
    queryFn: ({ signal }) => get<TaskList>(taskPath({ status: "input_required", size: mostWaiting }), signal),
    select: (list) => ({ waiting: list.tasks.filter((t) => t.approvals?.length), more: list.next_page_token !== "" }),
    // The operator's credential is for the admin API alone.
    enabled: !!who && !who.operator,
    refetchInterval: 5000,
    // The tab's title has the count also while another tab is in front.
    refetchIntervalInBackground: true,
  });
}

export function Inbox() {
  const { data, error, refetch, isPending } = useInbox();
  const cache = useQueryClient();
  const reload = () => void cache.invalidateQueries({ queryKey: ["inbox"] });
  return (
    <Stack>
      <Title order={2}>Inbox</Title>
      <Problem error={error} retry={() => void refetch()} />
      {isPending && <Skeleton height={160} />}
      {data?.waiting.length === 0 && (
        <Empty title="Nothing waits for you" command={"tools:\n  pay:\n    require_approval: true"}>
          Tool calls that need a decision appear here. A tool needs one with:
        </Empty>
      )}
      {data?.waiting.map((task) => (
        <article key={task.task_id}>
          <Stack gap="xs">
            <Group gap="xs">
              <Text fw={600}>{task.agent}</Text>
              <Text size="sm" c="dimmed">
                waits since <Time at={task.approvals?.[0]?.requested_at ?? task.status.timestamp} />
              </Text>
              <Link to="/tasks/$task" params={{ task: task.task_id }}>
                Task
              </Link>
            </Group>
            {task.approvals?.map((a) => <ApprovalView key={a.call_id} task={task.task_id} approval={a} onDecided={reload} />)}
          </Stack>
        </article>
      ))}
      {data?.more && <Text c="dimmed">More wait. They appear as these are decided.</Text>}
    </Stack>
  );
}
