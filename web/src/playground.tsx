import { ActionIcon, Button, Group, NativeSelect, Paper, Skeleton, Stack, Text, Textarea, Title } from "@mantine/core";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { agentId, useAgents } from "./agents";
import { base, callBody, cancelTask, isOver, type Call } from "./api";
import { conversations, dropConversation, newConversation, sendMessage, type Conversation, type Turn } from "./conversations";
import { ApprovalView, Empty, Problem, Snippet, State } from "./parts";
import { session } from "./session";
import { TimelineView } from "./timelineview";

export function Playground() {
  const search = useSearch({ from: "/playground" });
  const navigate = useNavigate();
  const agents = useAgents();
  const all = conversations.use();
  const names = agents.data?.agents.map(agentId) ?? [];
  const agent = search.agent ?? names[0] ?? "";
  const shown = all.find((c) => c.id === search.conversation && c.agent === agent) ?? all.find((c) => c.agent === agent);
  const open = (c: Conversation) => void navigate({ to: "/playground", search: { agent: c.agent, conversation: c.id } });
  if (agents.isPending) return <Skeleton height={200} />;
  return (
    <Stack className="playground">
      <Group justify="space-between">
        <Title order={2}>Playground</Title>
        <Group gap="xs">
          <NativeSelect
            aria-label="Agent"
            data={names.includes(agent) || !agent ? names : [agent, ...names]}
            value={agent}
            onChange={(e) => void navigate({ to: "/playground", search: { agent: e.currentTarget.value } })}
          />
          <Button variant="default" disabled={!agent} onClick={() => open(newConversation(agent))}>
            New conversation
          </Button>
        </Group>
      </Group>
      <Problem error={agents.error} retry={() => void agents.refetch()} />
      {!agent && agents.isSuccess && (
        <Empty title="There is no agent to talk to" command={"agents:\n  assistant:\n    llm: demo"}>
          Add one to the app's configuration:
        </Empty>
      )}
      {all.length > 1 && (
        <nav aria-label="Conversations" className="conversations">
          {all.map((c) => (
            <Group gap={2} key={c.id} wrap="nowrap">
              <Button size="compact-sm" variant={c === shown ? "light" : "subtle"} onClick={() => open(c)}>
                {c.agent}: {(c.turns[0]?.text ?? "empty").slice(0, 24)}
              </Button>
              <ActionIcon size="sm" variant="subtle" color="gray" aria-label="Close the conversation" onClick={() => dropConversation(c.id)}>
                ×
              </ActionIcon>
            </Group>
          ))}
        </nav>
      )}
      {agent && <ConversationView key={`${agent} ${shown?.id}`} agent={agent} conversation={shown} />}
    </Stack>
  );
}

function ConversationView({ agent, conversation }: { agent: string; conversation: Conversation | undefined }) {
  const [text, setText] = useState("");
  const end = useRef<HTMLDivElement>(null);
  const last = conversation?.turns.at(-1);
  useEffect(() => {
    end.current?.scrollIntoView({ block: "nearest" });
  }, [conversation]);
  const waitsForDecision = (last?.timeline.approvals.length ?? 0) > 0;
  const busy = !!last?.streaming;
  const send = () => {
    const trimmed = text.trim();
    if (!trimmed || busy || waitsForDecision) return;
    setText("");
    void sendMessage((conversation ?? newConversation(agent)).id, trimmed);
  };
  return (
    <>
      <div className="turns">
        {!last && <Text c="dimmed">Send a message to {agent}. Its tool calls and what waits for you appear here as they happen.</Text>}
        {conversation?.turns.map((turn, i) => <TurnView key={i} turn={turn} />)}
        <div ref={end} />
      </div>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          send();
        }}
      >
        <Group align="flex-end" gap="xs" wrap="nowrap">
          <Textarea
            aria-label="Message"
            placeholder={waitsForDecision ? "Decide first: a tool call waits" : "Message; Enter sends, Shift Enter begins a line"}
            className="grow"
            rows={2}
            value={text}
            onChange={(e) => setText(e.currentTarget.value)}
            onKeyDown={(e) => {
              if (e.key === "Enter" && !e.shiftKey && !e.nativeEvent.isComposing) {
                e.preventDefault();
                send();
              }
            }}
          />
          <Button type="submit" disabled={busy || waitsForDecision || !text.trim()}>
            Send
          </Button>
        </Group>
      </form>
    </>
  );
}

function TurnView({ turn }: { turn: Turn }) {
  const { timeline } = turn;
  const [curl, setCurl] = useState(false);
  const [wrong, setWrong] = useState<unknown>(null);
  return (
    <article className="turn">
      <Paper p="sm" className="mine">
        <div className="text">{turn.text}</div>
      </Paper>
      <TimelineView entries={timeline.entries} states={false} />
      {timeline.approvals.map((a) => (
        <ApprovalView key={a.call_id} task={timeline.task} approval={a} onDecided={() => {}} />
      ))}
      <Problem error={turn.error} />
      <Problem error={wrong} />
      <Group gap="xs">
        {timeline.state && <State state={timeline.state} />}
        {timeline.task && (
          <Link to="/tasks/$task" params={{ task: timeline.task }}>
            Task
          </Link>
        )}
        <Button size="compact-xs" variant="subtle" onClick={() => setCurl(!curl)}>
          {curl ? "Hide curl" : "Copy as curl"}
        </Button>
        {timeline.task && !isOver(timeline.state) && (
          <Button size="compact-xs" variant="light" color="red" onClick={() => cancelTask(timeline.task).then(() => setWrong(null), setWrong)}>
            Cancel
          </Button>
        )}
      </Group>
      {curl && <Snippet text={asCurl(turn.call)} />}
    </article>
  );
}

// asCurl returns a command that makes the call. The credential stands in a variable, so that no secret is copied.
export function asCurl(call: Call): string {
  const quote = (s: string) => `'${s.replaceAll("'", `'\\''`)}'`;
  const address = `${location.origin}${base()}/agents/${encodeURIComponent(call.agent)}`;
  const credential = session.get()?.token ? ` -H "Authorization: Bearer $STOA_TOKEN"` : "";
  return `curl -N ${quote(address)}${credential} \\\n  -H 'Content-Type: application/json' \\\n  -d ${quote(callBody(call))}`;
}
