import { Badge, Button, Group, Skeleton, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { get, type Schema } from "./api";
import { saveCsv } from "./csv";
import { Rows } from "./lists";
import { Exports } from "./overview";
import { Problem, Time } from "./parts";
import { session } from "./session";
import { count } from "./usage";

type Process = Schema["Process"];

// work names what one process does for all, by the name of its lease.
const work: Record<string, string> = {
  audit: "inspection of the audit trail",
  storage: "measuring of what apps store",
  sweep: "deletion of what retention no longer keeps",
};

const colors = { serving: "teal", stopping: "orange", lost: "red" } as const;

// System shows the processes, the work that one of them does for all, the schema, and what awaits a restart.
export function System() {
  const who = session.use();
  const health = useQuery({ queryKey: ["health"], queryFn: ({ signal }) => get<Schema["Health"]>("/health", signal, null), refetchInterval: 10_000 });
  const ready = useQuery({ queryKey: ["ready"], queryFn: ({ signal }) => get<Schema["Ready"]>("/ready", signal, null), refetchInterval: 10_000 });
  const fleet = useQuery({ queryKey: ["processes", who], queryFn: ({ signal }) => get<Schema["ProcessList"]>("/admin/processes", signal), refetchInterval: 10_000 });
  const exports = useQuery({ queryKey: ["exports", who], queryFn: ({ signal }) => get<Schema["ExportList"]>("/admin/exports", signal), refetchInterval: 30_000 });
  if (health.isPending || fleet.isPending) return <Skeleton height={400} />;
  const all = fleet.data?.processes ?? [];
  const late = [...new Set(all.flatMap((p) => p.awaits_restart))].sort();
  const hosts = new Map(all.map((p) => [p.id, p.host]));
  return (
    <Stack>
      <Title order={2}>System</Title>
      <Problem error={health.error ?? fleet.error ?? exports.error} retry={() => void Promise.all([health.refetch(), fleet.refetch(), exports.refetch()])} />
      <dl className="facts">
        <dt>Version</dt>
        <dd>{[...new Set(all.map((p) => p.version))].join(", ") || health.data?.version}</dd>
        <dt>This process</dt>
        <dd>{ready.data ? `${ready.data.status}, role ${ready.data.role}` : "not ready"}</dd>
        <dt>Database</dt>
        <dd>{health.data?.database_error ?? health.data?.database}</dd>
        <dt>Schema</dt>
        <dd>{fleet.data ? schema(fleet.data) : "unknown"}</dd>
        <dt>Authentication of the default app</dt>
        <dd>{health.data?.auth ? `on, issuer ${String(health.data.auth["issuer"] ?? "")}` : "off: every caller has all roles in it"}</dd>
        <dt>Studio mode</dt>
        <dd>{health.data?.studio_mode ? `on, for ${health.data.studio?.allowed_roles.join(", ")}` : "off"}</dd>
        <dt>Awaits a restart</dt>
        <dd>{late.length > 0 ? late.join(", ") : "nothing"}</dd>
      </dl>
      <Group justify="space-between">
        <Title order={3} size="h4">
          Processes
        </Title>
        <Button size="xs" variant="default" disabled={all.length === 0} onClick={() => saveCsv("processes.csv", all)}>
          Save as CSV
        </Button>
      </Group>
      {all.length === 0 ? (
        <Text c="dimmed">None has reported within the last hour.</Text>
      ) : (
        <Rows label="Processes" head={["Host", "State", "Role", "Version", "Started", "Last seen", "Runs at work", "Awaits a restart"]}>
          {all.map((p) => (
            <Table.Tr key={p.id}>
              <Table.Td title={p.id}>
                {p.host}
                {p.answering && " (this one)"}
              </Table.Td>
              <Table.Td>
                <Badge color={colors[p.status]} variant="light" tt="none">
                  {p.status}
                </Badge>
                {p.stopping_at && (
                  <>
                    {" since "}
                    <Time at={p.stopping_at} />
                  </>
                )}
              </Table.Td>
              <Table.Td>{p.role}</Table.Td>
              <Table.Td title={p.commit}>{p.version}</Table.Td>
              <Table.Td>
                <Time at={p.started_at} />
              </Table.Td>
              <Table.Td>
                <Time at={p.seen_at} />
              </Table.Td>
              <Table.Td>{count(p.running_runs)}</Table.Td>
              <Table.Td>{p.awaits_restart.join(", ")}</Table.Td>
            </Table.Tr>
          ))}
        </Rows>
      )}
      <Title order={3} size="h4">
        Work that one process does for all
      </Title>
      {!fleet.data?.leases.length ? (
        <Text c="dimmed">No process has any at present.</Text>
      ) : (
        <Rows label="Leases" head={["Work", "Process", "Lease ends"]}>
          {fleet.data.leases.map((l) => (
            <Table.Tr key={l.name}>
              <Table.Td>{work[l.name] ?? l.name}</Table.Td>
              <Table.Td title={l.process}>{hosts.get(l.process) ?? `${l.process}, which is gone`}</Table.Td>
              <Table.Td>
                <Time at={l.expires_at} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Rows>
      )}
      <Title order={3} size="h4">
        Exports of usage
      </Title>
      <Exports exports={exports.data?.exports ?? []} />
    </Stack>
  );
}

// schema says which migration the database has, and which processes know another one.
function schema({ schema, processes }: Schema["ProcessList"]): string {
  const others = processes.filter((p: Process) => p.status !== "lost" && p.migration !== schema.migration);
  const known = others.length > 0 ? `; ${others.map((p) => `${p.host} knows ${p.migration}`).join(", ")}` : "";
  return `migration ${schema.migration}${schema.dirty ? ", interrupted" : ""}${known}`;
}
