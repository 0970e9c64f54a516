import { Button, Group, Skeleton, Stack, Table, Text, TextInput, Title } from "@mantine/core";
import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { get, post, type Schema } from "./api";
import { hiddenHead, Pages, Rows } from "./lists";
import { Figure, useQueue } from "./overview";
import { Confirm, Problem, Time } from "./parts";
import { session } from "./session";
import { count } from "./usage";

// Queue shows what waits, and the runs that have failed for good.
export function Queue() {
  const who = session.use();
  const search = useSearch({ from: "/queue" });
  const navigate = useNavigate();
  const cache = useQueryClient();
  const queue = useQueue();
  const { app, agent, error } = search;
  const selection = { ...(app && { app }), ...(agent && { agent }), ...(error && { error }) };
  const query = new URLSearchParams({ page_size: "50", ...selection, ...(search.cursor && { page_token: search.cursor }) });
  const dead = useQuery({
    queryKey: ["dead", who, query.toString()],
    queryFn: ({ signal }) => get<Schema["DeadRunList"]>(`/admin/queue/dead?${query}`, signal),
    placeholderData: keepPreviousData,
    refetchInterval: 10_000,
  });
  const renew = () => {
    void cache.invalidateQueries({ queryKey: ["dead"] });
    void cache.invalidateQueries({ queryKey: ["queue"] });
  };
  const one = useMutation({ mutationFn: (id: string) => post<Schema["Requeued"]>(`/admin/queue/dead/${encodeURIComponent(id)}:requeue`), onSettled: renew });
  // The server selects by the same filter, so that what is requeued is what was counted, on all pages.
  const all = useMutation({ mutationFn: () => post<Schema["RequeuedCount"]>("/admin/queue/dead:requeue", selection), onSettled: renew });
  const filter = (next: object) => void navigate({ to: "/queue", search: { ...selection, ...next } });
  if (queue.isPending) return <Skeleton height={400} />;
  const total = dead.data?.total_size ?? 0;
  return (
    <Stack>
      <Title order={2}>Queue</Title>
      <Problem error={queue.error} retry={() => void queue.refetch()} />
      {queue.data && (
        <div className="figures">
          <Figure name="Waiting">{count(queue.data.pending)}</Figure>
          <Figure name="At work">{count(queue.data.running)}</Figure>
          <Figure name="Waiting for a human">{count(queue.data.input_required)}</Figure>
          <Figure name="Completed">{count(queue.data.completed)}</Figure>
          <Figure name="Oldest waits">{queue.data.oldest_pending_seconds < 1 ? "not at all" : `${Math.round(queue.data.oldest_pending_seconds)} s`}</Figure>
        </div>
      )}
      {!!queue.data?.apps.length && (
        <Rows label="Apps in the queue" head={["App", "Waiting", "At work"]}>
          {queue.data.apps.map((a) => (
            <Table.Tr key={a.app}>
              <Table.Td>
                <Link to="/apps/$app" params={{ app: a.app }}>
                  {a.app}
                </Link>
              </Table.Td>
              <Table.Td>{count(a.pending)}</Table.Td>
              <Table.Td>{count(a.running)}</Table.Td>
            </Table.Tr>
          ))}
        </Rows>
      )}
      <Title order={3} size="h4">
        Dead letters
      </Title>
      <Group gap="xs" align="flex-end">
        <TextInput label="App" value={app ?? ""} onChange={(e) => filter({ app: e.currentTarget.value || undefined })} />
        <TextInput label="Agent" value={agent ?? ""} onChange={(e) => filter({ agent: e.currentTarget.value || undefined })} />
        <TextInput label="Part of the error" value={error ?? ""} onChange={(e) => filter({ error: e.currentTarget.value || undefined })} />
        {total > 0 && !dead.isPlaceholderData && (
          <Confirm label={total === 1 ? "Requeue it" : `Requeue all ${count(total)}`} loading={all.isPending} onConfirm={() => all.mutate()}>
            {`Each continues in a new task${total > 1000 ? ", the first 1,000 of them" : ""}.`}
          </Confirm>
        )}
      </Group>
      <Problem error={dead.error ?? one.error ?? all.error} retry={() => void dead.refetch()} />
      {one.data && <Text role="status">It continues as task {one.data.task_id}.</Text>}
      {all.data && (
        <Text role="status">
          {count(all.data.requeued)} were requeued, {count(all.data.remaining)} remain.
        </Text>
      )}
      {total === 0 && dead.isSuccess && <Text c="dimmed">{Object.keys(selection).length > 0 ? "No dead letter fits." : "There are none. A run that fails at all its tries appears here."}</Text>}
      {total > 0 && (
        <>
          <Text size="sm" c="dimmed">
            {count(total)} {total === 1 ? "dead letter" : "dead letters"}
          </Text>
          <Rows label="Dead letters" head={["App and agent", "Reason", "Tries", "Failed", hiddenHead("Requeue")]}>
            {dead.data?.runs.map((r) => (
              <Table.Tr key={r.id}>
                <Table.Td>
                  {r.app}, {r.agent}
                  <Text size="xs" c="dimmed" className="mono">
                    task {r.task_id}
                  </Text>
                </Table.Td>
                <Table.Td>{r.last_error}</Table.Td>
                <Table.Td>{r.attempts}</Table.Td>
                <Table.Td>{r.failed_at && <Time at={r.failed_at} />}</Table.Td>
                <Table.Td>
                  <Button size="xs" variant="default" aria-label={`Requeue ${r.id}`} loading={one.isPending && one.variables === r.id} onClick={() => one.mutate(r.id)}>
                    Requeue
                  </Button>
                </Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        </>
      )}
      <Pages cursor={search.cursor} next={dead.data?.next_page_token} onChange={(cursor) => filter({ cursor })} />
    </Stack>
  );
}
