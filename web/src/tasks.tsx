import { Button, Group, NativeSelect, Skeleton, Stack, Table, Text, TextInput, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { agentId, useAgents } from "./agents";
import { get, taskPath, type TaskList, type TaskSearch } from "./api";
import { Empty, Problem, State, Time } from "./parts";
import { session } from "./session";

const states = ["submitted", "working", "input_required", "auth_required", "completed", "failed", "cancelled", "rejected"];

// Tasks lists tasks. Filter and page stand in the URL, and the server applies them.
export function Tasks() {
  const search = useSearch({ from: "/tasks" });
  const navigate = useNavigate();
  const who = session.use();
  const agents = useAgents();
  const names = agents.data?.agents.map(agentId) ?? [];
  const list = useQuery({
    queryKey: ["tasks", who, search],
    queryFn: ({ signal }) => get<TaskList>(taskPath({ ...search, size: 25 }), signal),
    placeholderData: keepPreviousData,
    refetchInterval: 5000,
  });
  const { cursor, ...filters } = search;
  const filter = (change: TaskSearch) => {
    const next = Object.entries({ ...filters, ...change }).filter(([, value]) => value);
    void navigate({ to: "/tasks", search: Object.fromEntries(next) });
  };
  const filtered = Object.keys(search).length > 0;
  return (
    <Stack>
      <Group justify="space-between">
        <Title order={2}>Tasks</Title>
        <Group gap="xs">
          <NativeSelect
            aria-label="State"
            data={[{ value: "", label: "Every state" }, ...states.map((s) => ({ value: s, label: s.replace("_", " ") }))]}
            value={search.status ?? ""}
            onChange={(e) => filter({ status: e.currentTarget.value })}
          />
          <NativeSelect
            aria-label="Agent"
            data={[{ value: "", label: "Every agent" }, ...new Set([...names, ...(search.agent ? [search.agent] : [])])]}
            value={search.agent ?? ""}
            onChange={(e) => filter({ agent: e.currentTarget.value })}
          />
        </Group>
      </Group>
      <Search key={JSON.stringify([search.since, search.until, search.text])} search={filters} onSearch={filter} />
      <Problem error={list.error} retry={() => void list.refetch()} />
      {list.isPending && <Skeleton height={200} />}
      {list.data?.tasks.length === 0 &&
        (filtered ? (
          <Empty title="No task fits">
            {list.data.next_page_token ? "None of the tasks that were looked at. The search goes on with the next page." : "Nothing here is what you selected."} <Link to="/tasks">Show all tasks</Link>
          </Empty>
        ) : (
          <Empty title="There are no tasks yet" command={`stoa call ${names[0] ?? "AGENT"} 'hello' --server ${location.origin}`}>
            Send a message in the <Link to="/playground">playground</Link>, or:
          </Empty>
        ))}
      {!!list.data?.tasks.length && (
        <>
          <Text size="sm" c="dimmed">
            {list.data.total_size} {list.data.total_size === 1 ? "task" : "tasks"}
            {search.text ? " to look at" : ""}
          </Text>
          <Table className="tasks" verticalSpacing="xs">
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Task</Table.Th>
                <Table.Th>State</Table.Th>
                <Table.Th>Agent</Table.Th>
                <Table.Th>Last change</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {list.data.tasks.map((task) => (
                <Table.Tr key={task.task_id}>
                  <Table.Td>
                    <Link to="/tasks/$task" params={{ task: task.task_id }} className="mono">
                      {task.task_id}
                    </Link>
                    {task.opening && (
                      <Text size="sm" lineClamp={1}>
                        {task.opening}
                      </Text>
                    )}
                    <Text size="sm" c="dimmed" lineClamp={1}>
                      {task.status.message?.parts.find((p) => p.type === "text")?.text ?? ""}
                    </Text>
                  </Table.Td>
                  <Table.Td>
                    <State state={task.status.state} />
                  </Table.Td>
                  <Table.Td>{task.agent}</Table.Td>
                  <Table.Td>
                    <Time at={task.status.timestamp} />
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </>
      )}
      <Group gap="xs">
        {cursor && (
          <Button variant="default" size="xs" onClick={() => filter({})}>
            First page
          </Button>
        )}
        {list.data?.next_page_token && (
          <Button variant="default" size="xs" onClick={() => filter({ cursor: list.data.next_page_token })}>
            Next page
          </Button>
        )}
      </Group>
    </Stack>
  );
}

// Search asks for a text and the time at which tasks were opened.
function Search({ search, onSearch }: { search: TaskSearch; onSearch: (change: TaskSearch) => void }) {
  const [draft, setDraft] = useState({ text: search.text ?? "", since: search.since ?? "", until: search.until ?? "" });
  const field = (name: keyof typeof draft, label: string, placeholder: string) => (
    <TextInput size="xs" label={label} placeholder={placeholder} value={draft[name]} onChange={(e) => setDraft({ ...draft, [name]: e.currentTarget.value })} />
  );
  return (
    <form
      role="search"
      onSubmit={(e) => {
        e.preventDefault();
        onSearch(draft);
      }}
    >
      <Group gap="xs" align="flex-end">
        {field("text", "Text", "of the first or last message")}
        {field("since", "Opened since", "2026-01-31")}
        {field("until", "Opened before", "2026-02-01T12:00:00Z")}
        <Button size="xs" type="submit">
          Search
        </Button>
      </Group>
    </form>
  );
}
