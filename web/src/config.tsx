import { Badge, Button, Code, Group, NativeSelect, Paper, PasswordInput, Skeleton, Stack, Table, Text, TextInput, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { ApiError, change, get, getText, type ConfigProblem, type Schema, type Text as ConfigText } from "./api";
import { defaultApp, useCaller } from "./caller";
import { Confirm, Empty, Problem, Time } from "./parts";
import type { JSONSchema } from "./schema";
import { session } from "./session";
import { createStore } from "./store";

const Editor = lazy(() => import("./editor"));

// Source is where a configuration is read and saved.
export interface Source {
  // id names the draft.
  id: string;
  read: (signal?: AbortSignal) => Promise<ConfigText>;
  // check returns what has no effect in a text, and throws the errors of one that would not load.
  check: (text: string, signal: AbortSignal) => Promise<ConfigProblem[]>;
  // save replaces the text that has the ETag and returns what to say.
  save: (text: string, etag: string) => Promise<string>;
  // revisions is the path of earlier texts, "" where none are kept.
  revisions: string;
}

interface Draft {
  // base is the text that the draft was made from, and etag its state.
  base: ConfigText;
  text: string;
}

// drafts outlive the screen, so that nothing typed is lost by a look at another one. They end with the session.
export const drafts = createStore<Record<string, Draft>>({});

// What one person has typed is not shown to the next.
session.subscribe(() => session.get() === null && drafts.set({}));

window.addEventListener("beforeunload", (e) => {
  if (Object.values(drafts.get()).some((d) => d.text !== d.base.text)) e.preventDefault();
});

// ofApp is the configuration of the app of the credential.
const ofApp: Source = {
  id: "app",
  read: (signal) => getText("/config", "application/yaml", signal),
  check: async (yaml, signal) => (await change<Schema["SavedConfig"]>("PUT", "/config?dry_run=true", { yaml, signal })).warnings,
  save: async (yaml, ifMatch) => `Saved as revision ${(await change<Schema["SavedConfig"]>("PUT", "/config", { yaml, ifMatch })).revision}.`,
  revisions: "/config/revisions",
};

// ofServer is the operator's file, in studio mode.
const ofServer: Source = {
  id: "server",
  read: (signal) => getText("/api/config", "application/yaml", signal),
  check: async (yaml, signal) => {
    await change("POST", "/api/config?dry_run=true", { yaml, signal });
    return [];
  },
  save: async (yaml, ifMatch) => (await change<Schema["StudioSaved"]>("POST", "/api/config", { yaml, ifMatch })).message,
  revisions: "",
};

// useConfigText reads the text of a source once: what is typed is not replaced by a later one.
export function useConfigText(source: Source, enabled = true) {
  const who = session.use();
  return useQuery({ queryKey: ["config", who, source.id], queryFn: ({ signal }) => source.read(signal), staleTime: Infinity, enabled });
}

// useAppSource returns where the configuration of the session's app is read: null where it is not, undefined until that is known.
function useAppSource(): Source | null | undefined {
  const caller = useCaller();
  const health = useQuery({ queryKey: ["health"], queryFn: ({ signal }) => get<Schema["Health"]>("/health", signal, null) });
  if (caller.isLoading) return undefined; // an operator is no caller
  if (caller.data?.app !== defaultApp) return ofApp;
  if (health.isPending) return undefined;
  return health.data?.studio_mode ? ofServer : null;
}

export function Config() {
  const search = useSearch({ from: "/config" });
  const navigate = useNavigate();
  const source = useAppSource();
  const read = useConfigText(source ?? ofApp, !!source);
  if (source === undefined) return <Skeleton height={400} />;
  if (source === null) {
    return (
      <Stack>
        <Title order={2}>Configuration</Title>
        <Empty title="This app is configured by its server's file" command="stoa serve --config FILE --studio">
          To change the file here, stop the server and start it with --studio added to its command. After make run that command is
          make run ARGS=&quot;--studio&quot;, with other ARGS as before. Without authentication everyone who reaches the server may then change the file.
        </Empty>
      </Stack>
    );
  }
  if (!read.data) return read.error ? <Problem error={read.error} retry={() => void read.refetch()} /> : <Skeleton height={400} />;
  return (
    <Stack>
      <Title order={2}>{source === ofApp ? "Configuration" : "Configuration of the server"}</Title>
      <Edit
        key={source.id}
        source={source}
        read={read.data}
        reload={async () => (await read.refetch()).data}
        compared={search.revision}
        onCompare={(revision) => void navigate({ to: "/config", search: revision === undefined ? {} : { revision } })}
      />
      {source === ofApp && <Secrets path="/secrets" />}
    </Stack>
  );
}

interface EditProps {
  source: Source;
  read: ConfigText;
  reload: () => Promise<ConfigText | undefined>;
  // compared is the revision with which the text is compared, or the one that was read.
  compared: number | "saved" | undefined;
  onCompare: (revision?: number | "saved") => void;
}

// Edit is an editor with the problems of its text, its differences from earlier ones, and a button that saves.
export function Edit({ source, read, reload, compared, onCompare: compareWith }: EditProps) {
  const who = session.use();
  const cache = useQueryClient();
  const draft = drafts.use()[source.id] ?? { base: read, text: read.text };
  const set = (next: Draft) => drafts.set({ ...drafts.get(), [source.id]: next });
  const [note, setNote] = useState("");
  const dirty = draft.text !== draft.base.text;
  const schema = useSchema();
  const secrets = useSecrets("/secrets", source === ofApp);
  const checked = useChecked(source.check, draft.text);
  const problems = useMemo(
    () => [
      ...checked.errors.map((problem) => ({ severity: "error" as const, problem })),
      ...checked.warnings.map((problem) => ({ severity: "warning" as const, problem })),
    ],
    [checked],
  );
  const revisions = useQuery({
    queryKey: ["revisions", who, source.id],
    queryFn: ({ signal }) => get<Schema["ConfigRevisionList"]>(source.revisions, signal),
    enabled: source.revisions !== "",
  });
  const other = useQuery({
    queryKey: ["revision", who, source.id, compared],
    queryFn: ({ signal }) => getText(`${source.revisions}/${compared}`, "application/yaml", signal),
    enabled: typeof compared === "number",
    staleTime: Infinity,
  });
  const original = compared === "saved" ? draft.base.text : typeof compared === "number" ? other.data?.text : undefined;
  const renew = async (message: string) => {
    const now = await reload();
    if (now) set({ base: now, text: now.text });
    void cache.invalidateQueries({ queryKey: ["revisions"] });
    void cache.invalidateQueries({ queryKey: ["agents"] });
    void cache.invalidateQueries({ queryKey: ["app"] });
    setNote(message);
  };
  const saving = useMutation({
    mutationFn: () => source.save(draft.text, draft.base.etag),
    onSuccess: renew,
  });
  const restoring = useMutation({
    mutationFn: (revision: number) => change<{ revision: number }>("POST", `${source.revisions}/${revision}:restore`, { ifMatch: draft.base.etag }),
    onSuccess: (saved, revision) => {
      compareWith();
      return renew(`Revision ${revision} is in force again, as revision ${saved.revision}.`);
    },
  });
  const isOlder = typeof compared === "number" && !revisions.data?.revisions.some((r) => r.current && r.revision === compared);
  // What restoring the revision would do is asked before it is offered: documents may go with it.
  const restorable = useQuery({
    queryKey: ["restorable", who, source.id, compared, draft.base.etag],
    queryFn: ({ signal }) => change<{ warnings?: ConfigProblem[] }>("POST", `${source.revisions}/${compared}:restore?dry_run=true`, { signal }),
    enabled: isOlder,
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
          {isOlder && (
            <Confirm label={`Restore revision ${compared}`} loading={restoring.isPending || restorable.isLoading} onConfirm={() => restoring.mutate(compared)}>
              It takes effect with the next turn{dirty ? ", and what you have typed here is lost" : ""}.
              {restorable.data?.warnings?.map((w) => (
                <Text key={w.path} span display="block" c="red">
                  {w.path}: {w.message}
                </Text>
              ))}
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
        saving.error instanceof ApiError && saving.error.problems.length > 0 ? (
          <Text role="alert" fw={600} c="red">
            It is not saved: correct the errors that are listed below the text first.
          </Text>
        ) : (
          <Problem error={saving.error} />
        )
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
        Ctrl Space completes; the pointer on a key explains it. Escape, then Tab leaves the editor.{" "}
        {source === ofServer ? "It is the text of the file, with its secrets: keep them out of it as ${NAME}." : "Secrets of the server are masked, and kept when they come back masked."}
      </Text>
      <Problems all={problems} />
    </Stack>
  );
}

// useSchema reads what the editor completes and explains. The operator's credential belongs to no app and has a path of its own.
export function useSchema() {
  const who = session.use();
  const path = who?.operator ? "/admin/schema" : "/api/schema";
  return useQuery({ queryKey: ["schema", who], queryFn: ({ signal }) => get<JSONSchema>(path, signal), staleTime: Infinity });
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
export function useChecked(check: Source["check"], text: string): Check & { current: boolean } {
  const [checked, setCheck] = useState<Check>({ text: null, errors: [], warnings: [], failure: null });
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const warnings = await check(text, stop.signal);
        setCheck({ text, errors: [], warnings, failure: null });
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
  }, [check, text]);
  return useMemo(() => ({ ...checked, current: checked.text === text }), [checked, text]);
}

export function Checked({ checked }: { checked: Check & { current: boolean } }) {
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

export function Problems({ all }: { all: { severity: "error" | "warning"; problem: ConfigProblem }[] }) {
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

function useSecrets(path: string, enabled: boolean) {
  const who = session.use();
  return useQuery({ queryKey: ["secrets", who, path], queryFn: ({ signal }) => get<Schema["SecretList"]>(path, signal), enabled });
}

// Secrets lists the names. Values go to the server and never come back.
export function Secrets({ path }: { path: string }) {
  const secrets = useSecrets(path, true);
  const cache = useQueryClient();
  const [name, setName] = useState("");
  const [value, setValue] = useState("");
  const renew = () => cache.invalidateQueries({ queryKey: ["secrets"] });
  const put = useMutation({
    mutationFn: () => change("PUT", `${path}/${encodeURIComponent(name.trim())}`, { json: { value } }),
    onSuccess: () => {
      setName("");
      setValue("");
      return renew();
    },
  });
  const remove = useMutation({ mutationFn: (secret: string) => change("DELETE", `${path}/${encodeURIComponent(secret)}`), onSuccess: renew });
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
