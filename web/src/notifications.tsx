import { Badge, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { get, type Schema } from "./api";
import { Rows } from "./lists";
import { Problem, Time } from "./parts";
import { session } from "./session";

type Status = Schema["NotificationList"]["notifications"][number]["status"];

const words: Record<Status, [color: string, text: string]> = {
  open: ["blue", "events follow"],
  done: ["teal", "all delivered"],
  dead: ["red", "given up"],
};

// Notifications shows who gets the events of a task, and whether they arrive; nothing if nobody does.
export function Notifications({ task, state }: { task: string; state: string }) {
  const who = session.use();
  const list = useQuery({
    queryKey: ["notifications", who, task, state],
    queryFn: ({ signal }) => get<Schema["NotificationList"]>(`/tasks/${encodeURIComponent(task)}/notifications`, signal),
    refetchInterval: ({ state: read }) => (read.data?.notifications.some((n) => n.status === "open") ? 10_000 : false),
  });
  if (!list.data?.notifications.length) return <Problem error={list.error} retry={() => void list.refetch()} />;
  return (
    <>
      <Title order={3} size="h4">
        Notifications
      </Title>
      <Rows label="Notifications" head={["Receiver", "State", "Failed attempts", "Created"]}>
        {list.data.notifications.map((n) => (
          <Table.Tr key={n.id}>
            <Table.Td>
              {n.id}
              <Text size="xs" c="dimmed">
                {n.form}
              </Text>
            </Table.Td>
            <Table.Td>
              <Badge variant="light" color={words[n.status][0]} tt="none">
                {words[n.status][1]}
              </Badge>
            </Table.Td>
            <Table.Td>
              {n.failed_attempts}
              {n.error && (
                <Text size="xs" c="dimmed">
                  {n.error}
                </Text>
              )}
            </Table.Td>
            <Table.Td>
              <Time at={n.created_at} />
            </Table.Td>
          </Table.Tr>
        ))}
      </Rows>
    </>
  );
}
