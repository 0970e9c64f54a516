import { Group, Text } from "@mantine/core";
import { Parts, State, ToolCallView } from "./parts";
import type { Entry } from "./timeline";

// mostAtOnce bounds how many steps of an answer are drawn; the task's page has all.
const mostAtOnce = 200;

// AnswerView shows the steps of a task as a conversation: its last ones, without states.
export function AnswerView({ entries }: { entries: Entry[] }) {
  const shown = entries.filter((e) => e.kind !== "state");
  const first = Math.max(0, shown.length - mostAtOnce);
  return (
    <>
      {first > 0 && (
        <Text size="sm" c="dimmed">
          {first.toLocaleString("en")} earlier steps are on the page of the task.
        </Text>
      )}
      <ol className="answer">
        {shown.slice(first).map((entry, i) => (
          <li key={first + i}>
            <EntryView entry={entry} />
          </li>
        ))}
      </ol>
    </>
  );
}

export function EntryView({ entry }: { entry: Entry }) {
  switch (entry.kind) {
    case "state":
      return <State state={entry.state} />;
    case "call":
      return <ToolCallView call={entry.call} />;
    case "message":
      return <Parts parts={entry.parts} />;
    case "artifact":
      return (
        <div>
          <Group gap="xs">
            <Text size="sm" fw={600}>
              Artifact {entry.name || entry.id}
            </Text>
          </Group>
          <Parts parts={entry.parts} />
        </div>
      );
  }
}
