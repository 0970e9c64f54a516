import { Badge, Button, Group, NativeSelect, PasswordInput, Skeleton, Stack, Table, Text, TextInput, Title } from "@mantine/core";
import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { lazy, Suspense, useMemo, useState } from "react";
import { ApiError, change, get, type Schema } from "./api";
import { Checked, Problems, useChecked, useSchema } from "./config";
import { Pages, Rows } from "./lists";
import { Empty, Problem, Time } from "./parts";
import { session } from "./session";

const Editor = lazy(() => import("./editor"));

const colors: Record<string, string> = { active: "teal", suspended: "orange", deleting: "gray" };

export function AppStatus({ status }: { status: string }) {
  return (
    <Badge variant="light" color={colors[status] ?? "gray"} tt="none">
      {status}
    </Badge>
  );
}

export function Apps() {
  const who = session.use();
  const search = useSearch({ from: "/apps" });
  const navigate = useNavigate();
  const query = new URLSearchParams({ page_size: "50", ...(search.status && { status: search.status }), ...(search.cursor && { page_token: search.cursor }) });
  const list = useQuery({
    queryKey: ["apps", who, query.toString()],
    queryFn: ({ signal }) => get<Schema["AppList"]>(`/admin/apps?${query}`, signal),
    placeholderData: keepPreviousData,
  });
  const open = useState("");
  return (
    <Stack>
      <Group justify="space-between" align="flex-end">
        <Title order={2}>Apps</Title>
        <Group gap="xs" align="flex-end">
          <NativeSelect
            aria-label="Status"
            data={[{ value: "", label: "Every status" }, "active", "suspended", "deleting"]}
            value={search.status ?? ""}
            onChange={(e) => void navigate({ to: "/apps", search: e.currentTarget.value ? { status: e.currentTarget.value } : {} })}
          />
          <form
            onSubmit={(e) => {
              e.preventDefault();
              if (open[0].trim()) void navigate({ to: "/apps/$app", params: { app: open[0].trim() } });
            }}
          >
            <TextInput aria-label="Open the app" placeholder="Name, Enter opens it" value={open[0]} onChange={(e) => open[1](e.currentTarget.value)} />
          </form>
          <Button component={Link} to="/apps/new">
            New app
          </Button>
        </Group>
      </Group>
      <Problem error={list.error} retry={() => void list.refetch()} />
      {list.isPending && <Skeleton height={200} />}
      {list.data?.apps.length === 0 && (
        <Empty title={search.status ? "No app has this status" : "There are no apps yet"} command="stoa app create NAME --config app.yaml">
          <Link to="/apps/new">Create one</Link>, or:
        </Empty>
      )}
      {!!list.data?.apps.length && (
        <>
          <Text size="sm" c="dimmed">
            {list.data.total_size} {list.data.total_size === 1 ? "app" : "apps"}
          </Text>
          <Rows label="Apps" head={["App", "Status", "Revision", "Plan", "Labels", "Last change"]}>
            {list.data.apps.map((a) => (
              <Table.Tr key={a.name}>
                <Table.Td>
                  <Link to="/apps/$app" params={{ app: a.name }}>
                    {a.name}
                  </Link>
                  <Text size="sm" c="dimmed">
                    {a.display_name}
                  </Text>
                </Table.Td>
                <Table.Td>
                  <AppStatus status={a.status} />
                </Table.Td>
                <Table.Td>{a.revision}</Table.Td>
                <Table.Td>{a.plan || "none"}</Table.Td>
                <Table.Td>{Object.entries(a.labels).map(([k, v]) => `${k}=${v}`).join(", ")}</Table.Td>
                <Table.Td>{a.updated_at && <Time at={a.updated_at} />}</Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        </>
      )}
      <Pages cursor={search.cursor} next={list.data?.next_page_token} onChange={(cursor) => void navigate({ to: "/apps", search: { ...search, cursor } })} />
    </Stack>
  );
}

const first = `llms:
  demo:
    provider: scripted
agents:
  assistant:
    llm: demo
`;

// secretNames returns the names of the variables in a text that have no default, comments on lines of their own left out.
function secretNames(text: string): string[] {
  const written = text.replace(/^\s*#.*$/gm, "");
  return [...new Set(Array.from(written.matchAll(/(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*)\}/g), (m) => m[1]!))];
}

// NewApp creates an app from YAML, which is checked by a dry run while it is typed.
export function NewApp() {
  const navigate = useNavigate();
  const cache = useQueryClient();
  const [name, setName] = useState("");
  const [text, setText] = useState(first);
  const schema = useSchema();
  const [secrets, setSecrets] = useState<Record<string, string>>({});
  const names = useMemo(() => secretNames(text), [text]);
  // What was typed for a name that the text has no longer is not sent.
  const entered = useMemo(() => Object.fromEntries(names.filter((n) => secrets[n]).map((n) => [n, secrets[n]!])), [names, secrets]);
  const checkAs = useMemo(
    () => async (config: string, signal: AbortSignal) =>
      // Until there is a name the configuration alone is checked.
      (await change<Schema["AppCheck"]>("POST", "/admin/apps?dry_run=true", { json: { name: name || "unnamed", config, secrets: entered }, signal })).warnings ?? [],
    [name, entered],
  );
  const checked = useChecked(checkAs, text);
  const create = useMutation({
    mutationFn: () => change<Schema["App"]>("POST", "/admin/apps", { json: { name, config: text, secrets: entered } }),
    onSuccess: (app) => {
      void cache.invalidateQueries({ queryKey: ["apps"] });
      return navigate({ to: "/apps/$app", params: { app: app.name } });
    },
  });
  // What was wrong with a name says nothing of the next one.
  const rename = (to: string) => {
    setName(to);
    create.reset();
  };
  const problems = useMemo(
    () => [
      ...checked.errors.map((problem) => ({ severity: "error" as const, problem })),
      ...checked.warnings.map((problem) => ({ severity: "warning" as const, problem })),
    ],
    [checked],
  );
  return (
    <Stack>
      <Title order={2}>New app</Title>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          create.mutate();
        }}
      >
        <Group align="flex-end" gap="xs">
          <TextInput label="Name" description="Lower-case letters, digits and hyphens" value={name} onChange={(e) => rename(e.currentTarget.value)} />
          <Button type="submit" disabled={!name} loading={create.isPending}>
            Create
          </Button>
          <Checked checked={checked} />
        </Group>
        {names.length > 0 && (
          <Stack gap="xs" mt="md" component="section" aria-labelledby="secrets">
            <Title order={3} size="h4" id="secrets">
              Secrets
            </Title>
            <Text size="sm" c="dimmed">
              The configuration names them. They are stored encrypted with the app, and no answer has their values.
            </Text>
            <Group gap="xs">
              {names.map((n) => (
                <PasswordInput key={n} label={n} autoComplete="new-password" className="wide" value={secrets[n] ?? ""} onChange={(e) => setSecrets({ ...secrets, [n]: e.currentTarget.value })} />
              ))}
            </Group>
          </Stack>
        )}
      </form>
      {!(create.error instanceof ApiError && create.error.problems.length > 0) && <Problem error={create.error ?? checked.failure} />}
      <Suspense fallback={<Skeleton height={300} />}>
        <Editor label="Configuration as YAML" value={text} onChange={setText} schema={schema.data} problems={problems} />
      </Suspense>
      <Problems all={problems} />
    </Stack>
  );
}
