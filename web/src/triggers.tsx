import { Badge, Group, Paper, Skeleton, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { base, get, type Schema } from "./api";
import { Empty, Problem, Snippet, Time } from "./parts";
import { session } from "./session";

const example = 'agents:\n  reporter:\n    trigger: {type: schedule, cron: "30 9 * * MON-FRI", input: Write the report of yesterday.}';

// Triggers lists what starts agents without a caller: the next and the last start of schedules, and addresses of webhooks.
export function Triggers() {
  const who = session.use();
  const { data, error, refetch, isPending } = useQuery({
    queryKey: ["triggers", who],
    queryFn: ({ signal }) => get<Schema["TriggerList"]>("/triggers", signal),
    refetchInterval: 15_000,
  });
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
          </Stack>
        </Paper>
      ))}
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
