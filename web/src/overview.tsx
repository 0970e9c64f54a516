import { Badge, Button, Group, NativeSelect, Paper, Skeleton, Stack, Table, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { get, type Schema } from "./api";
import { saveCsv } from "./csv";
import { Rows } from "./lists";
import { Empty, Problem, Time } from "./parts";
import { windows } from "./search";
import { session } from "./session";
import { TrafficChart } from "./traffic";
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
  traffic: Schema["TrafficOfApp"] | undefined;
}

// lasting returns a duration as people read it, "" for none.
export function lasting(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))}\u00a0ms`;
  return seconds < 10 ? `${seconds.toFixed(1)}\u00a0s` : `${count(Math.round(seconds))}\u00a0s`;
}

const failures = (t: Schema["TrafficCounts"] | undefined) => (t?.failed ?? 0) + (t?.failed_runs ?? 0);

// part returns a number and which part of all it is.
const part = (n: number, all: number) => (n === 0 ? "0" : `${count(n)} (${((n / all) * 100).toFixed(n * 100 < all ? 1 : 0)}%)`);

// between returns two quantiles.
const between = (median: number | null, most: number | null) => (median === null ? "none" : `${lasting(median)}, ${lasting(most)}`);

// saveRows saves what the list of apps shows, with numbers as the API has them.
function saveRows(rows: Row[], minutes: number) {
  saveCsv(
    `apps-${minutes}-minutes.csv`,
    rows.map((r) => {
      const { app: _, ...traffic } = r.traffic ?? { app: r.app };
      return {
        app: r.app,
        suspended: r.suspended,
        dead_letters: r.dead,
        pending: r.pending,
        running: r.running,
        ...traffic,
        runs_today: r.usage?.runs ?? 0,
        tokens_today: (r.usage?.input_tokens ?? 0) + (r.usage?.output_tokens ?? 0),
        charged_today: r.usage ? money(r.usage) : "",
      };
    }),
  );
}

// Overview shows the whole server in the last minutes and today, and its apps by trouble first: dead letters, then failures,
// then suspended, then what limits refused, then what waits.
export function Overview() {
  const who = session.use();
  const minutes = useSearch({ from: "/overview" }).minutes ?? 15;
  const navigate = useNavigate();
  const today = new Date().toISOString().slice(0, 10);
  const queue = useQueue();
  const traffic = useQuery({
    queryKey: ["traffic", who, minutes],
    queryFn: ({ signal }) => get<Schema["Traffic"]>(`/admin/traffic?minutes=${minutes}`, signal),
    placeholderData: keepPreviousData,
    refetchInterval: 10_000,
  });
  const dead = useQuery({ queryKey: ["dead", who, "overview"], queryFn: ({ signal }) => get<Schema["DeadRunList"]>("/admin/queue/dead?page_size=100", signal), refetchInterval: 10_000 });
  const usage = useQuery({ queryKey: ["usage", who, "all", today], queryFn: ({ signal }) => readUsage(today, signal), refetchInterval: 30_000 });
  const apps = useQuery({ queryKey: ["apps", who, "count"], queryFn: ({ signal }) => get<Schema["AppList"]>("/admin/apps?page_size=1", signal) });
  const suspended = useQuery({ queryKey: ["apps", who, "suspended"], queryFn: ({ signal }) => get<Schema["AppList"]>("/admin/apps?page_size=100&status=suspended", signal), refetchInterval: 30_000 });
  const flaws = useQuery({ queryKey: ["audit", who, "flaws"], queryFn: ({ signal }) => get<Schema["AuditPage"]>("/admin/audit?page_size=1", signal), refetchInterval: 30_000 });
  if (queue.isPending || apps.isPending) return <Skeleton height={400} />;
  const rows = new Map<string, Row>();
  const row = (app: string) => {
    const found = rows.get(app) ?? { app, suspended: false, dead: 0, pending: 0, running: 0, usage: undefined, traffic: undefined };
    rows.set(app, found);
    return found;
  };
  for (const q of queue.data?.apps ?? []) Object.assign(row(q.app), { pending: q.pending, running: q.running });
  for (const d of dead.data?.runs ?? []) row(d.app).dead++;
  for (const a of suspended.data?.apps ?? []) row(a.name).suspended = true;
  for (const t of traffic.data?.apps ?? []) row(t.app).traffic = t;
  for (const u of usage.data?.rows ?? []) row(u.app).usage = u;
  const sorted = [...rows.values()].sort(
    (a, b) =>
      b.dead - a.dead ||
      failures(b.traffic) - failures(a.traffic) ||
      Number(b.suspended) - Number(a.suspended) ||
      (b.traffic?.refused ?? 0) - (a.traffic?.refused ?? 0) ||
      b.pending - a.pending ||
      (b.traffic?.calls ?? 0) - (a.traffic?.calls ?? 0) ||
      (b.usage?.runs ?? 0) - (a.usage?.runs ?? 0) ||
      a.app.localeCompare(b.app),
  );
  const oldest = queue.data?.oldest_pending_seconds ?? 0;
  const totals = usage.data?.totals;
  const sum = traffic.data?.total;
  const more = (dead.data?.total_size ?? 0) > 100;
  return (
    <Stack>
      <Group justify="space-between">
        <Title order={2}>Overview</Title>
        <NativeSelect
          aria-label="Calls of the last"
          value={String(minutes)}
          data={windows.map((n) => ({ value: String(n), label: `last ${n} minutes` }))}
          onChange={(e) => void navigate({ to: "/overview", search: { minutes: Number(e.currentTarget.value) } })}
        />
      </Group>
      <Problem error={queue.error ?? traffic.error ?? dead.error ?? usage.error ?? apps.error ?? suspended.error} retry={() => void queue.refetch()} />
      <section className="figures" aria-label={`Calls of the last ${minutes} minutes`}>
        <Figure name="Calls">{sum ? count(sum.calls) : "unknown"}</Figure>
        <Figure name="Failed calls" bad={!!sum?.failed}>
          {sum ? part(sum.failed, sum.calls) : "unknown"}
        </Figure>
        <Figure name="Refused by limits">{sum ? part(sum.refused, sum.calls) : "unknown"}</Figure>
        <Figure name="Failed runs" bad={!!sum?.failed_runs}>
          {sum ? part(sum.failed_runs, sum.runs) : "unknown"}
        </Figure>
        <Figure name="Call, median and 99%">{sum ? between(sum.p50_seconds, sum.p99_seconds) : "unknown"}</Figure>
        <Figure name="Run, median and 99%">{sum ? between(sum.run_p50_seconds, sum.run_p99_seconds) : "unknown"}</Figure>
      </section>
      {traffic.data && <TrafficChart series={traffic.data.series} />}
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
      <Group justify="space-between">
        <Title order={3} size="h4">
          Apps, by trouble first
        </Title>
        <Button size="xs" variant="default" disabled={sorted.length === 0} onClick={() => saveRows(sorted, minutes)}>
          Save as CSV
        </Button>
      </Group>
      {sorted.length === 0 ? (
        <Empty title="No app has done anything today" command="stoa app token APP --sub NAME">
          Give a developer a token, on the page of <Link to="/apps">an app</Link>, or:
        </Empty>
      ) : (
        <Rows label="Apps by trouble" head={["App", "Dead letters", "Calls", "Failed calls", "Refused", "Failed runs", "Median", "99%", "Waiting", "At work", "Runs today", "Tokens today", "Charged today"]}>
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
              <Table.Td>{count(r.traffic?.calls ?? 0)}</Table.Td>
              <Table.Td>{part(r.traffic?.failed ?? 0, r.traffic?.calls ?? 0)}</Table.Td>
              <Table.Td>{part(r.traffic?.refused ?? 0, r.traffic?.calls ?? 0)}</Table.Td>
              <Table.Td>{part(r.traffic?.failed_runs ?? 0, r.traffic?.runs ?? 0)}</Table.Td>
              <Table.Td className="one-line">{lasting(r.traffic?.p50_seconds)}</Table.Td>
              <Table.Td className="one-line">{lasting(r.traffic?.p99_seconds)}</Table.Td>
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
