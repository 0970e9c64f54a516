import { Badge, Group, Paper, Skeleton, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { get, type Schema } from "./api";
import { Rows } from "./lists";
import { Empty, Problem, Time } from "./parts";
import { session } from "./session";
import { count, money } from "./usage";

// mostPages bounds how many pages of usage are read, of 100 apps each.
const mostPages = 10;

// readUsage returns the usage of all apps since a day, the totals first.
export async function readUsage(from: string, signal: AbortSignal): Promise<{ rows: Schema["UsageOfApp"][]; totals: Schema["UsageSum"] | undefined; more: boolean }> {
  const rows: Schema["UsageOfApp"][] = [];
  let totals: Schema["UsageSum"] | undefined;
  let token = "";
  for (let i = 0; i < mostPages; i++) {
    const query = new URLSearchParams({ from, page_size: "100", ...(token && { page_token: token }) });
    const page = await get<Schema["UsagePage"]>(`/admin/usage?${query}`, signal);
    rows.push(...page.rows);
    totals ??= page.totals;
    token = page.next_page_token;
    if (!token) break;
  }
  return { rows, totals, more: token !== "" };
}

export function useQueue() {
  const who = session.use();
  return useQuery({ queryKey: ["queue", who], queryFn: ({ signal }) => get<Schema["Queue"]>("/admin/queue", signal), refetchInterval: 5000 });
}

// Figure is a number with its name.
export function Figure({ name, children, bad }: { name: string; children: React.ReactNode; bad?: boolean }) {
  return (
    <Paper withBorder p="sm">
      <Text size="sm" c="dimmed">
        {name}
      </Text>
      <Text fw={700} size="lg" c={bad ? "red" : ""}>
        {children}
      </Text>
    </Paper>
  );
}

interface Row {
  app: string;
  suspended: boolean;
  dead: number;
  pending: number;
  running: number;
  usage: Schema["UsageOfApp"] | undefined;
}

// Overview shows the whole server today, and its apps by trouble first: dead letters, then suspended, then what waits.
export function Overview() {
  const who = session.use();
  const today = new Date().toISOString().slice(0, 10);
  const queue = useQueue();
  const dead = useQuery({ queryKey: ["dead", who, "overview"], queryFn: ({ signal }) => get<Schema["DeadRunList"]>("/admin/queue/dead?page_size=100", signal), refetchInterval: 10_000 });
  const usage = useQuery({ queryKey: ["usage", who, "all", today], queryFn: ({ signal }) => readUsage(today, signal), refetchInterval: 30_000 });
  const apps = useQuery({ queryKey: ["apps", who, "count"], queryFn: ({ signal }) => get<Schema["AppList"]>("/admin/apps?page_size=1", signal) });
  const suspended = useQuery({ queryKey: ["apps", who, "suspended"], queryFn: ({ signal }) => get<Schema["AppList"]>("/admin/apps?page_size=100&status=suspended", signal), refetchInterval: 30_000 });
  const flaws = useQuery({ queryKey: ["audit", who, "flaws"], queryFn: ({ signal }) => get<Schema["AuditPage"]>("/admin/audit?page_size=1", signal), refetchInterval: 30_000 });
  if (queue.isPending || apps.isPending) return <Skeleton height={400} />;
  const rows = new Map<string, Row>();
  const row = (app: string) => {
    const found = rows.get(app) ?? { app, suspended: false, dead: 0, pending: 0, running: 0, usage: undefined };
    rows.set(app, found);
    return found;
  };
  for (const q of queue.data?.apps ?? []) Object.assign(row(q.app), { pending: q.pending, running: q.running });
  for (const d of dead.data?.runs ?? []) row(d.app).dead++;
  for (const a of suspended.data?.apps ?? []) row(a.name).suspended = true;
  for (const u of usage.data?.rows ?? []) row(u.app).usage = u;
  const sorted = [...rows.values()].sort(
    (a, b) => b.dead - a.dead || Number(b.suspended) - Number(a.suspended) || b.pending - a.pending || (b.usage?.runs ?? 0) - (a.usage?.runs ?? 0) || a.app.localeCompare(b.app),
  );
  const oldest = queue.data?.oldest_pending_seconds ?? 0;
  const totals = usage.data?.totals;
  const more = (dead.data?.total_size ?? 0) > 100;
  return (
    <Stack>
      <Title order={2}>Overview</Title>
      <Problem error={queue.error ?? dead.error ?? usage.error ?? apps.error ?? suspended.error} retry={() => void queue.refetch()} />
      <div className="figures">
        <Figure name="Apps">{count(apps.data?.total_size ?? 0)}</Figure>
        <Figure name="At work">{count(queue.data?.running ?? 0)}</Figure>
        <Figure name="Waiting in the queue">{count(queue.data?.pending ?? 0)}</Figure>
        <Figure name="Oldest waits" bad={oldest > 60}>
          {oldest < 1 ? "not at all" : `${Math.round(oldest)} s`}
        </Figure>
        <Figure name="Waiting for a human">{count(queue.data?.input_required ?? 0)}</Figure>
        <Figure name="Dead letters" bad={(dead.data?.total_size ?? 0) > 0}>
          {count(dead.data?.total_size ?? 0)}
        </Figure>
        <Figure name="Runs today">{count(totals?.runs ?? 0)}</Figure>
        <Figure name="Tokens today">{count((totals?.input_tokens ?? 0) + (totals?.output_tokens ?? 0))}</Figure>
        <Figure name="Charged today">{(totals && money(totals)) || "nothing"}</Figure>
        <Figure name="Errors in the audit trail" bad={!!flaws.data?.flaws.length}>
          {flaws.data ? count(flaws.data.flaws.length) : "unknown"}
        </Figure>
      </div>
      <Title order={3} size="h4">
        Apps, by trouble first
      </Title>
      {sorted.length === 0 ? (
        <Empty title="No app has done anything today" command="stoa app token APP --sub NAME">
          Give a developer a token, on the page of <Link to="/apps">an app</Link>, or:
        </Empty>
      ) : (
        <Rows label="Apps by trouble" head={["App", "Dead letters", "Waiting", "At work", "Runs today", "Tokens today", "Charged today"]}>
          {sorted.slice(0, 200).map((r) => (
            <Table.Tr key={r.app}>
              <Table.Td>
                <Group gap="xs">
                  <Link to="/apps/$app" params={{ app: r.app }}>
                    {r.app}
                  </Link>
                  {r.suspended && (
                    <Badge color="orange" variant="light" tt="none">
                      suspended
                    </Badge>
                  )}
                </Group>
              </Table.Td>
              <Table.Td>
                {r.dead > 0 ? (
                  <Link to="/queue" search={{ app: r.app }}>
                    {more ? `at least ${r.dead}` : r.dead}
                  </Link>
                ) : (
                  0
                )}
              </Table.Td>
              <Table.Td>{r.pending}</Table.Td>
              <Table.Td>{r.running}</Table.Td>
              <Table.Td>{count(r.usage?.runs ?? 0)}</Table.Td>
              <Table.Td>{count((r.usage?.input_tokens ?? 0) + (r.usage?.output_tokens ?? 0))}</Table.Td>
              <Table.Td>{r.usage ? money(r.usage) : ""}</Table.Td>
            </Table.Tr>
          ))}
        </Rows>
      )}
    </Stack>
  );
}

// System shows the process that answers, and what awaits a restart.
export function System() {
  const who = session.use();
  const health = useQuery({ queryKey: ["health"], queryFn: ({ signal }) => get<Schema["Health"]>("/health", signal, null), refetchInterval: 10_000 });
  const ready = useQuery({ queryKey: ["ready"], queryFn: ({ signal }) => get<Schema["Ready"]>("/ready", signal, null), refetchInterval: 10_000 });
  const own = useQuery({ queryKey: ["app", who, "default"], queryFn: ({ signal }) => get<Schema["App"]>("/admin/apps/default", signal) });
  const exports = useQuery({ queryKey: ["exports", who], queryFn: ({ signal }) => get<Schema["ExportList"]>("/admin/exports", signal), refetchInterval: 30_000 });
  if (health.isPending) return <Skeleton height={200} />;
  const late = own.data?.awaits_restart ?? [];
  return (
    <Stack>
      <Title order={2}>System</Title>
      <Problem error={health.error ?? own.error ?? exports.error} retry={() => void health.refetch()} />
      <dl className="facts">
        <dt>Version</dt>
        <dd>{health.data?.version}</dd>
        <dt>This process</dt>
        <dd>{ready.data ? `${ready.data.status}, role ${ready.data.role}` : "not ready"}</dd>
        <dt>Database</dt>
        <dd>{health.data?.database_error ?? health.data?.database}</dd>
        <dt>Authentication of the default app</dt>
        <dd>{health.data?.auth ? `on, issuer ${String(health.data.auth["issuer"] ?? "")}` : "off: every caller has all roles in it"}</dd>
        <dt>Studio mode</dt>
        <dd>{health.data?.studio_mode ? `on, for ${health.data.studio?.allowed_roles.join(", ")}` : "off"}</dd>
        <dt>Awaits a restart</dt>
        <dd>{late.length > 0 ? late.join(", ") : "nothing"}</dd>
      </dl>
      <Title order={3} size="h4">
        Exports of usage
      </Title>
      <Exports exports={exports.data?.exports ?? []} />
      <Text size="sm" c="dimmed">
        Where metrics are on, latencies, error rates and the other processes are at /metrics and on the dashboards in deploy/.
      </Text>
    </Stack>
  );
}

export function Exports({ exports }: { exports: Schema["ExportList"]["exports"] }) {
  if (exports.length === 0) return <Text c="dimmed">There are none.</Text>;
  return (
    <Rows label="Exports" head={["Name", "Batch", "Rows", "Refused", "Last change", "Last error"]}>
      {exports.map((e) => (
        <Table.Tr key={e.name}>
          <Table.Td>{e.name}</Table.Td>
          <Table.Td>
            {e.batch}
            {e.pending && ", not delivered yet"}
          </Table.Td>
          <Table.Td>{count(e.rows)}</Table.Td>
          <Table.Td>{count(e.refused)}</Table.Td>
          <Table.Td>{e.updated_at && <Time at={e.updated_at} />}</Table.Td>
          <Table.Td>{e.last_error}</Table.Td>
        </Table.Tr>
      ))}
    </Rows>
  );
}
