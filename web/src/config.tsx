import { Badge, Button, Code, Group, NativeSelect, Paper, PasswordInput, Skeleton, Stack, Table, Text, TextInput, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { ApiError, change, get, getText, type ConfigProblem, type Schema, type Text as ConfigText } from "./api";
import { Confirm, Empty, Problem, Time } from "./parts";
import type { JSONSchema } from "./schema";
import { session } from "./session";
import { createStore } from "./store";

const Editor = lazy(() => import("./editor"));

// Source is where a configuration is read and saved: the app's own, or the operator's file in studio mode.
type Source = "app" | "studio";

interface Draft {
  // base is the text that the draft was made from, and etag its state.
  base: ConfigText;
  text: string;
}

// drafts outlive the screen, so that nothing typed is lost by a look at another one. They end with the session.
export const drafts = createStore<Partial<Record<Source, Draft>>>({});

window.addEventListener("beforeunload", (e) => {
  if (Object.values(drafts.get()).some((d) => d.text !== d.base.text)) e.preventDefault();
});

const readers: Record<Source, (signal?: AbortSignal) => Promise<ConfigText>> = {
  app: (signal) => getText("/config", "application/yaml", signal),
  studio: (signal) => getText("/api/config", "application/yaml", signal),
};

type Saved = Partial<Schema["SavedConfig"] & Schema["StudioSaved"]>;

// save checks or replaces the configuration.
function save(source: Source, dryRun: boolean, yaml: string, ifMatch: string, signal?: AbortSignal): Promise<Saved> {
  const query = dryRun ? "?dry_run=true" : "";
  const options = { yaml, ...(ifMatch && { ifMatch }), ...(signal && { signal }) };
  return source === "app" ? change<Saved>("PUT", `/config${query}`, options) : change<Saved>("POST", `/api/config${query}`, options);
}

export function Config() {
  const who = session.use();
  const health = useQuery({ queryKey: ["health"], queryFn: ({ signal }) => get<Schema["Health"]>("/health", signal, null) });
  const app = useQuery({ queryKey: ["config", who, "app"], queryFn: ({ signal }) => readers.app(signal), staleTime: Infinity });
  // The configuration of the default app is the server's file: the studio's, where that is on.
  const isDefault = app.error instanceof ApiError && app.error.status === 412;
  const studio = useQuery({
    queryKey: ["config", who, "studio"],
    queryFn: ({ signal }) => readers.studio(signal),
    enabled: isDefault && !!health.data?.studio_mode,
    staleTime: Infinity,
  });
  const source: Source = isDefault ? "studio" : "app";
  const read = isDefault ? studio : app;
  if (app.isPending || (isDefault && health.isPending)) return <Skeleton height={400} />;
  if (isDefault && !health.data?.studio_mode) {
    return (
      <Empty title="This app is configured by its server's file" command="stoa serve --config stoa.yaml --studio">
        The file is changed on its machine, or here when the server runs in studio mode:
      </Empty>
    );
  }
  if (!read.data) return read.error ? <Problem error={read.error} retry={() => void read.refetch()} /> : <Skeleton height={400} />;
  return (
    <Stack>
      <Title order={2}>{source === "app" ? "Configuration" : "Configuration of the server"}</Title>
      <Edit key={source} source={source} read={read.data} reload={async () => (await read.refetch()).data} />
      {source === "app" && <Secrets />}
    </Stack>
  );
}

function Edit({ source, read, reload }: { source: Source; read: ConfigText; reload: () => Promise<ConfigText | undefined> }) {
  const who = session.use();
  const cache = useQueryClient();
  const search = useSearch({ from: "/config" });
  const navigate = useNavigate();
  const draft = drafts.use()[source] ?? { base: read, text: read.text };
  const set = (next: Draft) => drafts.set({ ...drafts.get(), [source]: next });
  const [note, setNote] = useState("");
  const dirty = draft.text !== draft.base.text;
  const schema = useQuery({ queryKey: ["schema", who], queryFn: ({ signal }) => get<JSONSchema>("/api/schema", signal), staleTime: Infinity });
  const secrets = useSecrets(source === "app");
  const checked = useChecked(source, draft.text);
  const problems = useMemo(
    () => [
      ...checked.errors.map((problem) => ({ severity: "error" as const, problem })),
      ...checked.warnings.map((problem) => ({ severity: "warning" as const, problem })),
    ],
    [checked],
  );
  const revisions = useQuery({
    queryKey: ["revisions", who],
    queryFn: ({ signal }) => get<Schema["ConfigRevisionList"]>("/config/revisions", signal),
    enabled: source === "app",
  });
  const compared = search.revision;
  const other = useQuery({
    queryKey: ["revision", who, compared],
    queryFn: ({ signal }) => getText(`/config/revisions/${compared}`, "application/yaml", signal),
    enabled: typeof compared === "number",
    staleTime: Infinity,
  });
  const original = compared === "saved" ? draft.base.text : typeof compared === "number" ? other.data?.text : undefined;
  const compareWith = (revision?: number | "saved") => void navigate({ to: "/config", search: revision === undefined ? {} : { revision } });
  const renew = async (message: string) => {
    const now = await reload();
    if (now) set({ base: now, text: now.text });
    void cache.invalidateQueries({ queryKey: ["revisions"] });
    void cache.invalidateQueries({ queryKey: ["agents"] });
    setNote(message);
  };
  const saving = useMutation({
    mutationFn: () => save(source, false, draft.text, draft.base.etag),
    onSuccess: (saved) => renew(saved.message ?? `Saved as revision ${saved.revision}.`),
  });
  const restoring = useMutation({
    mutationFn: (revision: number) => change<Schema["SavedConfig"]>("POST", `/config/revisions/${revision}:restore`, { ifMatch: draft.base.etag }),
    onSuccess: (saved, revision) => {
      compareWith();
      return renew(`Revision ${revision} is in force again, as revision ${saved.revision}.`);
    },
  });
  const stale = saving.error instanceof ApiError && saving.error.status === 412;
  // takeOver keeps what was typed, and shows it as a change of what is saved now.
  const takeOver = useMutation({
    mutationFn: reload,
    onSuccess: (now) => {
      if (!now) return;
      set({ base: now, text: draft.text });
      saving.reset();
      compareWith("saved");
    },
  });
  return (
    <Stack gap="sm">
      <Group justify="space-between" align="flex-end">
        <Group gap="xs" align="flex-end">
          <NativeSelect
            label="Compare with"
            data={[
              { value: "", label: "nothing" },
              { value: "saved", label: "what was read" },
              ...(revisions.data?.revisions.map((r) => ({ value: String(r.revision), label: `revision ${r.revision}${r.current ? " (current)" : ""}, ${r.actor}` })) ?? []),
            ]}
            value={compared === undefined ? "" : String(compared)}
            onChange={(e) => compareWith(e.currentTarget.value === "" ? undefined : e.currentTarget.value === "saved" ? "saved" : Number(e.currentTarget.value))}
          />
          {typeof compared === "number" && !revisions.data?.revisions.some((r) => r.current && r.revision === compared) && (
            <Confirm label={`Restore revision ${compared}`} loading={restoring.isPending} onConfirm={() => restoring.mutate(compared)}>
              It takes effect with the next turn{dirty ? ", and what you have typed here is lost" : ""}.
            </Confirm>
          )}
        </Group>
        <Group gap="xs">
          <Checked checked={checked} />
          {dirty && (
            <Confirm label="Discard" onConfirm={() => set({ base: draft.base, text: draft.base.text })}>
              What you have typed is lost.
            </Confirm>
          )}
          <Button disabled={!dirty} loading={saving.isPending} onClick={() => saving.mutate()}>
            Save
          </Button>
        </Group>
      </Group>
      {note && !dirty && (
        <Text role="status" fw={600}>
          {note}
        </Text>
      )}
      {stale ? (
        <Paper withBorder p="sm" role="alert">
          <Stack gap="xs" align="flex-start">
            <Text fw={600}>Somebody has saved another configuration since you began.</Text>
            <Text size="sm">What you have typed is kept. Compare it with the present configuration, then save again.</Text>
            <Button size="xs" loading={takeOver.isPending} onClick={() => takeOver.mutate()}>
              Compare with the present one
            </Button>
          </Stack>
        </Paper>
      ) : (
        !(saving.error instanceof ApiError && saving.error.problems.length > 0) && <Problem error={saving.error} />
      )}
      <Problem error={restoring.error ?? takeOver.error ?? other.error ?? checked.failure} />
      {restoring.error instanceof ApiError && <Problems all={restoring.error.problems.map((problem) => ({ severity: "error", problem }))} />}
      <Suspense fallback={<Skeleton height={400} />}>
        <Editor
          label="Configuration as YAML"
          value={draft.text}
          onChange={(text) => set({ base: draft.base, text })}
          schema={schema.data}
          secrets={secrets.data?.secrets.map((s) => s.name) ?? none}
          problems={problems}
          original={original}
        />
      </Suspense>
      <Text size="xs" c="dimmed">
        Ctrl Space completes; the pointer on a key explains it. Escape, then Tab leaves the editor. Secrets of the server are masked, and kept when they come back masked.
      </Text>
      <Problems all={problems} />
    </Stack>
  );
}

const none: string[] = [];

interface Check {
  // text is what was checked.
  text: string | null;
  errors: ConfigProblem[];
  warnings: ConfigProblem[];
  // failure is why it could not be checked.
  failure: unknown;
}

// useChecked checks a text by a dry run a moment after the last change of it.
function useChecked(source: Source, text: string): Check & { current: boolean } {
  const [check, setCheck] = useState<Check>({ text: null, errors: [], warnings: [], failure: null });
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const { warnings } = await save(source, true, text, "", stop.signal);
        setCheck({ text, errors: [], warnings: warnings ?? [], failure: null });
      } catch (error) {
        if (stop.signal.aborted) return;
        const errors = error instanceof ApiError ? error.problems : [];
        setCheck({ text, errors, warnings: [], failure: errors.length > 0 ? null : error });
      }
    }, 400);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [source, text]);
  return useMemo(() => ({ ...check, current: check.text === text }), [check, text]);
}

function Checked({ checked }: { checked: Check & { current: boolean } }) {
  if (checked.failure) return null;
  const [color, text] = !checked.current
    ? ["gray", "checking"]
    : checked.errors.length > 0
      ? ["red", checked.errors.length === 1 ? "1 error" : `${checked.errors.length} errors`]
      : ["teal", "valid"];
  return (
    <Badge variant="light" color={color} tt="none" role="status">
      {text}
    </Badge>
  );
}

function Problems({ all }: { all: { severity: "error" | "warning"; problem: ConfigProblem }[] }) {
  if (all.length === 0) return null;
  return (
    <ul className="problems" aria-label="Problems">
      {all.map(({ severity, problem }, i) => (
        <li key={i}>
          <Group gap="xs" align="baseline" wrap="nowrap">
            <Badge size="sm" flex="none" variant="light" color={severity === "error" ? "red" : "yellow"} tt="none">
              {severity}
            </Badge>
            <div>
              {problem.line > 0 && <Text span size="sm">Line {problem.line}: </Text>}
              {problem.path && <Code>{problem.path}</Code>} <Text span size="sm">{problem.message}</Text>
              {problem.suggestion && (
                <Text size="sm" c="dimmed">
                  Did you mean <Code>{problem.suggestion}</Code>?
                </Text>
              )}
            </div>
          </Group>
        </li>
      ))}
    </ul>
  );
}

function useSecrets(enabled: boolean) {
  const who = session.use();
  return useQuery({ queryKey: ["secrets", who], queryFn: ({ signal }) => get<Schema["SecretList"]>("/secrets", signal), enabled });
}

// Secrets lists the names. Values go to the server and never come back.
function Secrets() {
  const secrets = useSecrets(true);
  const cache = useQueryClient();
  const [name, setName] = useState("");
  const [value, setValue] = useState("");
  const renew = () => cache.invalidateQueries({ queryKey: ["secrets"] });
  const put = useMutation({
    mutationFn: () => change("PUT", `/secrets/${encodeURIComponent(name.trim())}`, { json: { value } }),
    onSuccess: () => {
      setName("");
      setValue("");
      return renew();
    },
  });
  const remove = useMutation({ mutationFn: (secret: string) => change("DELETE", `/secrets/${encodeURIComponent(secret)}`), onSuccess: renew });
  return (
    <section aria-labelledby="secrets">
      <Stack gap="sm">
        <Title order={3} size="h4" id="secrets">
          Secrets
        </Title>
        <Text size="sm" c="dimmed">
          The configuration refers to a secret as <Code>{"${NAME}"}</Code>. No value is ever shown.
        </Text>
        <Problem error={secrets.error} retry={() => void secrets.refetch()} />
        {!!secrets.data?.secrets.length && (
          <Table>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Name</Table.Th>
                <Table.Th>Last change</Table.Th>
                <Table.Th>
                  <span className="hidden">Delete</span>
                </Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {secrets.data.secrets.map((s) => (
                <Table.Tr key={s.name}>
                  <Table.Td className="mono">{s.name}</Table.Td>
                  <Table.Td>
                    <Time at={s.updated_at ?? s.created_at ?? ""} />
                  </Table.Td>
                  <Table.Td>
                    <Confirm label="Delete" about={s.name} onConfirm={() => remove.mutate(s.name)}>
                      Its value cannot be had again.
                    </Confirm>
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        )}
        <form
          onSubmit={(e) => {
            e.preventDefault();
            put.mutate();
          }}
        >
          <Group align="flex-end" gap="xs">
            <TextInput label="Name of the secret" placeholder="OPENAI_API_KEY" autoComplete="off" value={name} onChange={(e) => setName(e.currentTarget.value)} />
            <PasswordInput label="Value" autoComplete="new-password" className="wide" value={value} onChange={(e) => setValue(e.currentTarget.value)} />
            <Button type="submit" variant="default" loading={put.isPending} disabled={!name.trim() || !value}>
              Store the secret
            </Button>
          </Group>
        </form>
        <Problem error={put.error ?? remove.error} />
      </Stack>
    </section>
  );
}
