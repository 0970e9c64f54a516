import { Badge, Button, Code, FileButton, Group, NativeSelect, Paper, Progress, Skeleton, Stack, Table, Text, TextInput, Title } from "@mantine/core";
import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { change, get, post, uploadFile, type Schema } from "./api";
import { Confirm, Empty, Problem, Time } from "./parts";
import { session } from "./session";

// waiting is how often a store is read again while documents wait for their index.
const waiting = 1500;

const colors: Record<string, string> = { ready: "teal", indexed: "teal", indexing: "blue", pending: "blue", failed: "red", deleting: "gray" };

function StoreState({ state }: { state: string }) {
  return (
    <Badge variant="light" color={colors[state] ?? "gray"} tt="none">
      {state}
    </Badge>
  );
}

function useStores() {
  const who = session.use();
  return useQuery({
    queryKey: ["stores", who],
    queryFn: ({ signal }) => get<Schema["DocumentStoreList"]>("/v1/document-stores", signal),
    refetchInterval: ({ state }) => (state.data?.documentStores.some((s) => s.pending > 0 || s.state === "indexing") ? waiting : 15_000),
  });
}

// Stores lists the document stores of the app.
export function Stores() {
  const { data, error, refetch, isPending } = useStores();
  return (
    <Stack>
      <Title order={2}>Documents</Title>
      <Problem error={error} retry={() => void refetch()} />
      {isPending && <Skeleton height={120} />}
      {data?.documentStores.length === 0 && (
        <Empty title="There are no document stores yet" command={"document_stores:\n  manual: {source: {type: upload}}\nagents:\n  assistant:\n    document_stores: [manual]"}>
          Add one to the <Link to="/config">configuration</Link>:
        </Empty>
      )}
      <div className="cards">
        {data?.documentStores.map((s) => (
          <Paper withBorder p="md" key={s.name} component="article">
            <Stack gap="xs">
              <Group justify="space-between">
                <Link to="/documents/$store" params={{ store: s.name }} className="name">
                  {s.name}
                </Link>
                <StoreState state={s.state} />
              </Group>
              <Text size="sm">
                {s.documents} {s.documents === 1 ? "document" : "documents"}
                {s.pending > 0 && `, ${s.pending} waiting`}
                {s.failed > 0 && `, ${s.failed} failed`}
              </Text>
              <Text size="sm" c="dimmed">
                From {s.source}, searched by {s.embedder ? `words and ${s.embedder}` : "words"}
              </Text>
              {s.error && <Text size="sm">{s.error}</Text>}
            </Stack>
          </Paper>
        ))}
      </div>
    </Stack>
  );
}

// Upload is a file that was chosen, and what became of it.
interface Upload {
  key: number;
  file: File;
  part: number;
  outcome: string;
  error: unknown;
  stop: AbortController;
}

// uploadsAtOnce bounds how many files are sent at a time.
const uploadsAtOnce = 3;

// Store is the page of a document store: upload, search, documents.
export function Store() {
  const { store } = useParams({ from: "/documents/$store" });
  const stores = useStores();
  const found = stores.data?.documentStores.find((s) => s.name === store);
  if (stores.isPending) return <Skeleton height={300} />;
  if (stores.error) return <Problem error={stores.error} retry={() => void stores.refetch()} />;
  if (!found) {
    return (
      <Empty title={`There is no document store ${store}`}>
        <Link to="/documents">See those that there are</Link>
      </Empty>
    );
  }
  return (
    <Stack key={store}>
      <Group justify="space-between">
        <Title order={2}>{store}</Title>
        <StoreState state={found.state} />
      </Group>
      <dl className="facts">
        <dt>Documents</dt>
        <dd>
          {found.documents}, {found.pending} waiting, {found.failed} failed
        </dd>
        {found.chunks !== undefined && (
          <>
            <dt>Chunks</dt>
            <dd>{found.chunks}</dd>
          </>
        )}
        <dt>Vectors</dt>
        <dd>{found.embedder || "none: it is searched by words"}</dd>
        {found.oldestPending && (
          <>
            <dt>Waits longest</dt>
            <dd>
              since <Time at={found.oldestPending} />
            </dd>
          </>
        )}
        {found.error && (
          <>
            <dt>Error</dt>
            <dd>{found.error}</dd>
          </>
        )}
      </dl>
      <Search store={store} />
      {found.source === "upload" ? <Uploads store={store} /> : <Reindex store={store} source={found.source} />}
      <Documents store={store} busy={found.pending > 0} />
    </Stack>
  );
}

function Reindex({ store, source }: { store: string; source: string }) {
  const cache = useQueryClient();
  const start = useMutation({
    mutationFn: () => post(`/v1/document-stores/${encodeURIComponent(store)}:reindex`),
    onSuccess: () => cache.invalidateQueries({ queryKey: ["stores"] }),
  });
  return (
    <Stack gap="xs">
      <Group gap="xs">
        <Text size="sm" c="dimmed">
          Its documents are those of its source, of type {source}.
        </Text>
        <Button size="xs" variant="default" loading={start.isPending} onClick={() => start.mutate()}>
          Read the source again
        </Button>
      </Group>
      <Problem error={start.error} />
    </Stack>
  );
}

function Uploads({ store }: { store: string }) {
  const cache = useQueryClient();
  const [uploads, setUploads] = useState<Upload[]>([]);
  const queue = useRef<Upload[]>([]);
  const running = useRef(0);
  const last = useRef(0);
  const update = (key: number, change: Partial<Upload>) => setUploads((all) => all.map((u) => (u.key === key ? { ...u, ...change } : u)));
  const pump = () => {
    while (running.current < uploadsAtOnce && queue.current.length > 0) {
      const next = queue.current.shift()!;
      if (next.stop.signal.aborted) continue;
      running.current++;
      uploadFile<Schema["StoredDocument"]>(documentPath(store, next.file.name), next.file, (part) => update(next.key, { part }), next.stop.signal)
        .then(
          (stored) => update(next.key, { part: 1, outcome: stored.outcome }),
          (error: unknown) => update(next.key, { error }),
        )
        .finally(() => {
          running.current--;
          void cache.invalidateQueries({ queryKey: ["documents"] });
          void cache.invalidateQueries({ queryKey: ["stores"] });
          pump();
        });
    }
  };
  const add = (files: File[]) => {
    const added = files.map((file) => ({ key: ++last.current, file, part: 0, outcome: "", error: null, stop: new AbortController() }));
    setUploads((all) => [...added, ...all]);
    queue.current.push(...added);
    pump();
  };
  const again = (u: Upload) => {
    setUploads((all) => all.filter((o) => o.key !== u.key));
    add([u.file]);
  };
  const stop = (u: Upload) => {
    u.stop.abort();
    if (queue.current.includes(u)) update(u.key, { error: new Error("The upload was cancelled.") });
  };
  return (
    <section aria-labelledby="upload">
      <Stack gap="xs">
        <Group gap="xs" id="upload">
          <FileButton multiple onChange={add}>
            {(props) => (
              <Button {...props} variant="default">
                Upload files
              </Button>
            )}
          </FileButton>
          <Text size="sm" c="dimmed">
            A file replaces the document of the same name. At most 20 MiB each.
          </Text>
        </Group>
        {uploads.length > 0 && (
          <ul className="problems" aria-label="Uploads">
            {uploads.map((u) => (
              <li key={u.key}>
                <Group gap="xs">
                  <Text size="sm" className="mono">
                    {u.file.name}
                  </Text>
                  {u.outcome ? (
                    <Badge color="teal" variant="light" tt="none">
                      {u.outcome}
                    </Badge>
                  ) : u.error ? (
                    <Button size="compact-xs" variant="default" onClick={() => again(u)}>
                      Try again
                    </Button>
                  ) : (
                    <>
                      <Progress value={u.part * 100} w={120} aria-label={`Upload of ${u.file.name}`} />
                      <Button size="compact-xs" variant="subtle" onClick={() => stop(u)}>
                        Cancel
                      </Button>
                    </>
                  )}
                </Group>
                <Problem error={u.error} />
              </li>
            ))}
          </ul>
        )}
      </Stack>
    </section>
  );
}

const documentPath = (store: string, id: string) => `/v1/document-stores/${encodeURIComponent(store)}/documents/${encodeURIComponent(id)}`;

const states = ["pending", "indexed", "failed", "deleting"];

function Documents({ store, busy }: { store: string; busy: boolean }) {
  const who = session.use();
  const search = useSearch({ from: "/documents/$store" });
  const navigate = useNavigate();
  const cache = useQueryClient();
  const query = new URLSearchParams({ page_size: "50" });
  if (search.state) query.set("state", search.state);
  if (search.prefix) query.set("prefix", search.prefix);
  if (search.cursor) query.set("page_token", search.cursor);
  const list = useQuery({
    queryKey: ["documents", who, store, query.toString()],
    queryFn: ({ signal }) => get<Schema["DocumentList"]>(`/v1/document-stores/${encodeURIComponent(store)}/documents?${query}`, signal),
    placeholderData: keepPreviousData,
    refetchInterval: busy ? waiting : 15_000,
  });
  // The last document that waited has left the store's count before this list was read.
  useEffect(() => void cache.invalidateQueries({ queryKey: ["documents"] }), [busy, cache]);
  const filter = (next: object) => void navigate({ to: "/documents/$store", params: { store }, search: { ...search, cursor: undefined, ...next } as never });
  const remove = useMutation({
    mutationFn: (d: Schema["Document"]) => change("DELETE", documentPath(store, d.id), { ifMatch: `"${d.contentHash}"` }),
    onSettled: () => {
      void cache.invalidateQueries({ queryKey: ["documents"] });
      void cache.invalidateQueries({ queryKey: ["stores"] });
    },
  });
  return (
    <section aria-label="Documents">
      <Stack gap="xs">
        <Group gap="xs">
          <NativeSelect
            aria-label="State"
            data={[{ value: "", label: "Every state" }, ...states]}
            value={search.state ?? ""}
            onChange={(e) => filter({ state: e.currentTarget.value || undefined })}
          />
          <TextInput aria-label="Beginning of the name" placeholder="Beginning of the name" value={search.prefix ?? ""} onChange={(e) => filter({ prefix: e.currentTarget.value || undefined })} />
        </Group>
        <Problem error={list.error ?? remove.error} retry={() => void list.refetch()} />
        {list.isPending && <Skeleton height={120} />}
        {list.data?.documents.length === 0 && (
          <Text c="dimmed">{search.state || search.prefix || search.cursor ? "No document fits." : "There are no documents here yet."}</Text>
        )}
        {!!list.data?.documents.length && (
          <>
            <Text size="sm" c="dimmed">
              {list.data.totalSize} {list.data.totalSize === 1 ? "document" : "documents"}
            </Text>
            <Table className="tasks">
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>Document</Table.Th>
                  <Table.Th>State</Table.Th>
                  <Table.Th>Size</Table.Th>
                  <Table.Th>Last change</Table.Th>
                  <Table.Th>
                    <span className="hidden">Delete</span>
                  </Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {list.data.documents.map((d) => (
                  <Table.Tr key={d.id}>
                    <Table.Td>
                      <Text size="sm" className="mono">
                        {d.id}
                      </Text>
                      {d.title !== d.id && (
                        <Text size="sm" c="dimmed">
                          {d.title}
                        </Text>
                      )}
                      {d.error && <Text size="sm">{d.error}</Text>}
                    </Table.Td>
                    <Table.Td>
                      <StoreState state={d.state} />
                    </Table.Td>
                    <Table.Td>
                      {bytes(d.bytes)}, {d.chunks} {d.chunks === 1 ? "chunk" : "chunks"}
                    </Table.Td>
                    <Table.Td>{d.updatedAt && <Time at={d.updatedAt} />}</Table.Td>
                    <Table.Td>
                      <Confirm label="Delete" about={d.id} disabled={d.state === "deleting"} onConfirm={() => remove.mutate(d)}>
                        No search finds it any more.
                      </Confirm>
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </>
        )}
        <Group gap="xs">
          {search.cursor && (
            <Button variant="default" size="xs" onClick={() => filter({})}>
              First page
            </Button>
          )}
          {list.data?.nextPageToken && (
            <Button variant="default" size="xs" onClick={() => filter({ cursor: list.data.nextPageToken })}>
              Next page
            </Button>
          )}
        </Group>
      </Stack>
    </section>
  );
}

function bytes(n: number): string {
  if (n < 1024) return `${n} B`;
  return n < 1024 * 1024 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / 1024 / 1024).toFixed(1)} MiB`;
}

// Search tries what an agent would find.
function Search({ store }: { store: string }) {
  const [question, setQuestion] = useState("");
  const [mode, setMode] = useState("");
  const search = useMutation({
    mutationFn: () =>
      post<Schema["DocumentSearchAnswer"]>(`/v1/document-stores/${encodeURIComponent(store)}:search`, { query: question, limit: 10, ...(mode && { mode }) }),
  });
  return (
    <section aria-label="Search">
      <Stack gap="xs">
        <form
          onSubmit={(e) => {
            e.preventDefault();
            if (question.trim()) search.mutate();
          }}
        >
          <Group gap="xs" align="flex-end">
            <TextInput label="What would be found" placeholder="A question or words" className="grow" value={question} onChange={(e) => setQuestion(e.currentTarget.value)} />
            <NativeSelect
              label="By"
              data={[
                { value: "", label: "the best it has" },
                { value: "hybrid", label: "words and vectors" },
                { value: "text", label: "words" },
                { value: "vector", label: "vectors" },
              ]}
              value={mode}
              onChange={(e) => setMode(e.currentTarget.value)}
            />
            <Button type="submit" loading={search.isPending} disabled={!question.trim()}>
              Search
            </Button>
          </Group>
        </form>
        <Problem error={search.error} />
        {search.data && (
          <Stack gap="xs" role="status" aria-label="Results">
            <Text size="sm" c="dimmed">
              {search.data.results.length === 0 ? "Nothing was found" : `${search.data.results.length} ${search.data.results.length === 1 ? "passage" : "passages"}`}, by {search.data.mode}
            </Text>
            {search.data.degraded && <Text size="sm">A part was left out: {search.data.degraded}</Text>}
            {search.data.results.map((r, i) => (
              <Paper withBorder p="sm" key={r.chunk} component="article">
                <Group gap="xs">
                  <Text fw={600} size="sm">
                    {i + 1}. {r.title || r.document}
                  </Text>
                  <Text size="xs" c="dimmed">
                    {[r.document, r.page && `page ${r.page}`, r.heading, r.sheet, r.line && `line ${r.line}`].filter(Boolean).join(", ")}
                  </Text>
                  <Code>score {score(r.score)}</Code>
                  {Object.entries(r.scores).map(([leg, value]) => (
                    <Code key={leg}>
                      {leg} {score(value)}
                    </Code>
                  ))}
                </Group>
                <Text size="sm" className="text" lineClamp={6}>
                  {r.text}
                </Text>
              </Paper>
            ))}
          </Stack>
        )}
      </Stack>
    </section>
  );
}

const score = (n: number) => n.toPrecision(3);
