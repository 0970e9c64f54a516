import { Badge, Button, Group, Paper, Skeleton, Stack, Table, Text, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { base, get, post, type Schema } from "./api";
import { saveCsv } from "./csv";
import { Rows } from "./lists";
import { Empty, Problem, Snippet, Time } from "./parts";
import { session } from "./session";

const example = 'agents:\n  reporter:\n    trigger: {type: schedule, cron: "30 9 * * MON-FRI", input: Write the report of yesterday.}';

// Triggers lists what starts agents without a caller: the next and the last start of schedules, addresses of webhooks, and
// on demand the last starts of each. The address says whose are open.
export function Triggers() {
  const who = session.use();
  const { data, error, refetch, isPending } = useQuery({
    queryKey: ["triggers", who],
    queryFn: ({ signal }) => get<Schema["TriggerList"]>("/triggers", signal),
    refetchInterval: 15_000,
  });
  const { starts } = useSearch({ from: "/triggers" });
  const navigate = useNavigate();
  return (
    <Stack>
      <Title order={2}>Triggers</Title>
      <Problem error={error} retry={() => void refetch()} />
      {isPending && <Skeleton height={120} />}
      {data?.triggers.length === 0 && (
        <Empty title="Nothing starts an agent by itself" command={example}>
          Add a schedule or a webhook to the <Link to="/config">configuration</Link>:
        </Empty>
      )}
      {data?.triggers.map((t) => (
        <Paper withBorder p="md" key={`${t.agent} ${t.type}`} component="article" aria-label={`Trigger of ${t.agent}`}>
          <Stack gap="xs">
            <Group gap="xs">
              <Text fw={600}>{t.agent}</Text>
              <Badge variant="light" color="gray" tt="none">
                {t.type}
              </Badge>
              <Link to="/tasks" search={{ agent: t.agent }}>
                Its tasks
              </Link>
            </Group>
            {t.type === "schedule" ? (
              <dl className="facts">
                <dt>When</dt>
                <dd>
                  <span className="mono">{t.cron}</span> {t.timezone}
                </dd>
                <dt>Next</dt>
                <dd>{t.next_at ? <Time at={t.next_at} /> : "never"}</dd>
                <dt>Last</dt>
                <dd>
                  {t.last_at ? <Time at={t.last_at} /> : "never yet"}{" "}
                  {t.last_task_id && (
                    <Link to="/tasks/$task" params={{ task: t.last_task_id }}>
                      Task
                    </Link>
                  )}
                </dd>
                {t.last_error && (
                  <>
                    <dt>Error</dt>
                    <dd>{t.last_error}</dd>
                  </>
                )}
              </dl>
            ) : (
              <Snippet text={delivery(t)} />
            )}
            <Group gap="xs">
              {t.type === "schedule" && <RunNow agent={t.agent} />}
              <Button
                size="xs"
                variant="default"
                aria-expanded={starts === t.agent}
                onClick={() => void navigate({ to: "/triggers", search: starts === t.agent ? {} : { starts: t.agent } })}
              >
                Last starts
              </Button>
            </Group>
            {starts === t.agent && <Starts agent={t.agent} />}
          </Stack>
        </Paper>
      ))}
    </Stack>
  );
}

// RunNow starts an agent as its schedule does.
function RunNow({ agent }: { agent: string }) {
  const cache = useQueryClient();
  const run = useMutation({
    mutationFn: () => post<Schema["WebhookAnswer"]>(`/triggers/${encodeURIComponent(agent)}:run`),
    onSettled: () => void cache.invalidateQueries({ queryKey: ["starts"] }),
  });
  return (
    <>
      <Button size="xs" loading={run.isPending} onClick={() => run.mutate()}>
        Run now
      </Button>
      {run.data && (
        <Link to="/tasks/$task" params={{ task: run.data.task_id }}>
          The task that it started
        </Link>
      )}
      <Problem error={run.error} />
    </>
  );
}

const outcomes: Record<Schema["StartList"]["starts"][number]["outcome"], string> = {
  started: "teal",
  repeated: "gray",
  unsigned: "red",
  refused: "orange",
  invalid: "red",
  failed: "red",
};

const kinds = { tick: "schedule", manual: "by hand", delivery: "webhook" } as const;

// Starts lists what became of the last attempts to start an agent by its trigger.
function Starts({ agent }: { agent: string }) {
  const who = session.use();
  const { data, error, refetch, isPending } = useQuery({
    queryKey: ["starts", who, agent],
    queryFn: ({ signal }) => get<Schema["StartList"]>(`/triggers/${encodeURIComponent(agent)}/starts`, signal),
    refetchInterval: 15_000,
  });
  if (isPending) return <Skeleton height={80} />;
  const all = data?.starts ?? [];
  return (
    <Stack gap="xs">
      <Problem error={error} retry={() => void refetch()} />
      {data && all.length === 0 && <Text c="dimmed">It was not started by its trigger yet.</Text>}
      {all.length > 0 && (
        <>
          <Rows label={`Last starts of ${agent}`} head={["When", "By", "Outcome", "Task or error"]}>
            {all.map((s, i) => (
              <Table.Tr key={i}>
                <Table.Td>
                  <Time at={s.at} />
                </Table.Td>
                <Table.Td>{kinds[s.kind]}</Table.Td>
                <Table.Td>
                  <Badge color={outcomes[s.outcome]} variant="light" tt="none">
                    {s.outcome}
                  </Badge>
                </Table.Td>
                <Table.Td>
                  {s.task_id ? (
                    <Link to="/tasks/$task" params={{ task: s.task_id }}>
                      Task
                    </Link>
                  ) : (
                    s.error
                  )}
                </Table.Td>
              </Table.Tr>
            ))}
          </Rows>
          <Group>
            <Button size="xs" variant="default" onClick={() => saveCsv(`starts-of-${agent}.csv`, all)}>
              Save as CSV
            </Button>
          </Group>
        </>
      )}
    </Stack>
  );
}

// delivery returns commands that send a signed delivery. The secret stands in a variable.
function delivery({ path, methods }: Schema["TriggerList"]["triggers"][number]): string {
  const address = `${location.origin}${base()}${path}`;
  return `body='{}'
signature=$(printf %s "$body" | openssl dgst -sha256 -hmac "$HOOK_SECRET" -r | cut -d' ' -f1)
curl -X ${methods?.[0] ?? "POST"} '${address}' -H "X-Webhook-Signature: sha256=$signature" \\
  -H 'Content-Type: application/json' -d "$body"`;
}
