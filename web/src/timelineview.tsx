import { Group, Text } from "@mantine/core";
import { CancelCall, Parts, State, ToolCallView } from "./parts";
import { callsUnderWay, type Entry } from "./timeline";

// mostAtOnce bounds how many steps of an answer are drawn; the task's page has all.
const mostAtOnce = 200;

// AnswerView shows the steps of a task as a conversation: its last ones, without states. working is the task while it is at work,
// else "": its calls that have not ended can be cancelled.
export function AnswerView({ entries, working }: { entries: Entry[]; working: string }) {
  const running = working ? callsUnderWay(entries) : [];
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
            {entry.kind === "call" && running.includes(entry) && <CancelCall task={working} call={entry.call} />}
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
