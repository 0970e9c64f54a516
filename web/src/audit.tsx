import { Alert, Button, Code, Group, Skeleton, Stack, Table, Text, TextInput, Title } from "@mantine/core";
import { keepPreviousData, useMutation, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { download, get, type Schema } from "./api";
import { Pages, Rows } from "./lists";
import { Json, Problem, Snippet, Time } from "./parts";
import type { AuditSearch } from "./search";
import { session } from "./session";

// Audit searches the trail. The filters stand in the address, and the server applies them.
export function Audit() {
  const who = session.use();
  const search = useSearch({ from: "/audit" });
  const navigate = useNavigate();
  const { cursor, ...filters } = search;
  const [draft, setDraft] = useState<Omit<AuditSearch, "cursor">>(filters);
  const selection = Object.fromEntries(
    Object.entries(filters).map(([k, v]) => [k, (k === "since" || k === "until") && /^\d{4}-\d\d-\d\d$/.test(v) ? `${v}T00:00:00Z` : v]),
  );
  const query = new URLSearchParams({ page_size: "50", ...selection, ...(cursor && { page_token: cursor }) });
  const list = useQuery({
    queryKey: ["audit", who, query.toString()],
    queryFn: ({ signal }) => get<Schema["AuditPage"]>(`/admin/audit?${query}`, signal),
    placeholderData: keepPreviousData,
  });
  const save = useMutation({ mutationFn: () => download(`/admin/audit/export?${new URLSearchParams(selection)}`, "audit.jsonl") });
  const field = (name: keyof typeof draft, label: string, placeholder: string) => (
    <TextInput label={label} placeholder={placeholder} value={draft[name] ?? ""} onChange={(e) => setDraft({ ...draft, [name]: e.currentTarget.value })} />
  );
  return (
    <Stack>
      <Title order={2}>Audit trail</Title>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void navigate({ to: "/audit", search: Object.fromEntries(Object.entries(draft).filter(([, v]) => v)) });
        }}
      >
        <Group gap="xs" align="flex-end">
          {field("app", "App", "name or id")}
          {field("actor", "Actor", "subject")}
          {field("action", "Action", "app.keys, approval")}
          {field("since", "Since", "2026-01-31")}
          {field("until", "Until", "2026-02-01")}
          <Button type="submit">Search</Button>
          <Button variant="default" loading={save.isPending} onClick={() => save.mutate()}>
            Export
          </Button>
        </Group>
      </form>
      <Problem error={list.error ?? save.error} retry={() => void list.refetch()} />
      {list.isPending && <Skeleton height={200} />}
      {list.data &&
        (list.data.flaws.length > 0 ? (
          <Alert color="red" variant="light" title="The trail has been changed or is incomplete" role="alert">
            <ul className="problems">
              {list.data.flaws.map((f, i) => (
                <li key={i}>
                  {f.app || "all apps"}, entry {f.seq}: {f.flaw} {f.found_at && <Time at={f.found_at} />}
                </li>
              ))}
            </ul>
          </Alert>
        ) : (
          <Text size="sm" c="dimmed">
            The server has found no error in these chains. To verify them yourself, with an export that you keep elsewhere:
          </Text>
        ))}
      <Snippet text="stoa audit verify" />
      {list.data?.entries.length === 0 && <Text c="dimmed">No entry fits.</Text>}
      {!!list.data?.entries.length && (
        <Rows label="Entries" head={["When", "Actor", "Action", "App", "Detail"]}>
          {list.data.entries.map((e) => (
            <Table.Tr key={`${e.app_id} ${e.id}`}>
              <Table.Td>{e.at && <Time at={e.at} />}</Table.Td>
              <Table.Td>
                {e.actor}
                <Text size="xs" c="dimmed">
                  {[e.issuer, e.client].filter(Boolean).join(", ")}
                </Text>
              </Table.Td>
              <Table.Td>
                <Code>{e.action}</Code>
              </Table.Td>
              <Table.Td>{e.app}</Table.Td>
              <Table.Td>
                <details>
                  <summary>
                    Entry {e.seq}
                    {e.request_id && `, request ${e.request_id}`}
                  </summary>
                  <Json value={e} />
                </details>
              </Table.Td>
            </Table.Tr>
          ))}
        </Rows>
      )}
      <Pages cursor={cursor} next={list.data?.next_page_token} onChange={(next) => void navigate({ to: "/audit", search: { ...filters, ...(next && { cursor: next }) } })} />
    </Stack>
  );
}
