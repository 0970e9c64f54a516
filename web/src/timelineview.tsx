import { Group, Text } from "@mantine/core";
import { Parts, State, Time, ToolCallView } from "./parts";
import type { Entry } from "./timeline";

// TimelineView shows the steps of a task in their order. Without states it reads as a conversation.
export function TimelineView({ entries, states }: { entries: Entry[]; states: boolean }) {
  return (
    <ol className={states ? "timeline" : "answer"}>
      {entries.map((entry, i) => {
        if (entry.kind === "state" && !states) return null;
        return (
          <li key={i}>
            {states && entry.at && (
              <Text size="xs" c="dimmed" component="span" className="when">
                <Time at={entry.at} />
              </Text>
            )}
            <EntryView entry={entry} />
          </li>
        );
      })}
    </ol>
  );
}

function EntryView({ entry }: { entry: Entry }) {
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
