import { ActionIcon, Button, FileButton, Group, NativeSelect, Paper, Skeleton, Stack, Text, Textarea, Title } from "@mantine/core";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { agentId, useAgents } from "./agents";
import { base, callBody, cancelTask, isOver, type Call } from "./api";
import { useMay } from "./caller";
import { conversations, dropConversation, newConversation, sendMessage, type Conversation, type OutgoingPart, type Turn } from "./conversations";
import { ApprovalView, Empty, Parts, Problem, Snippet, State } from "./parts";
import { session } from "./session";
import { asProgram, languages, type Language } from "./snippets";
import { AnswerView } from "./timelineview";

export function Playground() {
  const search = useSearch({ from: "/playground" });
  const navigate = useNavigate();
  const agents = useAgents();
  const all = conversations.use();
  const names = agents.data?.agents.map(agentId) ?? [];
  const agent = search.agent ?? names[0] ?? "";
  const shown = all.find((c) => c.id === search.conversation && c.agent === agent) ?? all.find((c) => c.agent === agent);
  const open = (c: Conversation) => void navigate({ to: "/playground", search: { agent: c.agent, conversation: c.id } });
  // The view in which a conversation is begun stays when it is there, with what is typed and the focus.
  const begun = useRef(0);
  const begin = () => {
    const c = newConversation(agent);
    begun.current = c.id;
    return c;
  };
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
                {c.agent}: {titleOf(c)}
              </Button>
              <ActionIcon size="sm" variant="subtle" color="gray" aria-label="Close the conversation" onClick={() => dropConversation(c.id)}>
                ×
              </ActionIcon>
            </Group>
          ))}
        </nav>
      )}
      {agent && <ConversationView key={`${agent} ${shown && shown.id !== begun.current ? shown.id : ""}`} agent={agent} conversation={shown} begin={begin} />}
    </Stack>
  );
}

// titleOf returns the beginning of a conversation.
function titleOf(c: Conversation): string {
  return (c.turns[0]?.parts.map((p) => p.text ?? p.name ?? "data").join(" ") || "empty").slice(0, 24);
}

// mostFileBytes bounds the files of a message. In base64 they are a third larger.
const mostFileBytes = 10 << 20;

function readFile(file: File): Promise<OutgoingPart> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () =>
      resolve({ type: "file", name: file.name, mime_type: file.type || "application/octet-stream", data: String(reader.result).replace(/^[^,]*,/, "") });
    reader.onerror = () => reject(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
}

function ConversationView({ agent, conversation, begin }: { agent: string; conversation: Conversation | undefined; begin: () => Conversation }) {
  const [text, setText] = useState("");
  const end = useRef<HTMLDivElement>(null);
  const last = conversation?.turns.at(-1);
  useEffect(() => {
    end.current?.scrollIntoView({ block: "nearest" });
  }, [conversation]);
  const decides = useMay("tasks:approve");
  const waitsForDecision = (last?.timeline.approvals.length ?? 0) > 0;
  const busy = !!last?.streaming;
  const atWork = busy && last.timeline.task && !isOver(last.timeline.state) ? last : null;
  const [files, setFiles] = useState<File[]>([]);
  const [data, setData] = useState<string | null>(null);
  const [wrong, setWrong] = useState<unknown>(null);
  const empty = !text.trim() && files.length === 0 && !data?.trim();
  const send = async () => {
    if (empty || busy || waitsForDecision) return;
    const parts: OutgoingPart[] = [];
    try {
      if (text.trim()) parts.push({ type: "text", text: text.trim() });
      if (files.reduce((sum, f) => sum + f.size, 0) > mostFileBytes) throw new Error("The files have more than 10 MiB. Send fewer at a time.");
      parts.push(...(await Promise.all(files.map(readFile))));
      if (data?.trim()) parts.push({ type: "data", mime_type: "application/json", data: parseData(data) });
    } catch (error) {
      return setWrong(error);
    }
    setText("");
    setFiles([]);
    setData(null);
    setWrong(null);
    void sendMessage((conversation ?? begin()).id, parts);
  };
  return (
    <>
      <div className="turns">
        {!last && <Text c="dimmed">Send a message to {agent}. Its tool calls and what waits for you appear here as they happen.</Text>}
        {conversation?.turns.map((turn, i) => <TurnView key={i} turn={turn} cancels={turn !== atWork} />)}
        <div ref={end} />
      </div>
      <form
        className="write"
        onSubmit={(e) => {
          e.preventDefault();
          void send();
        }}
      >
        <Problem error={wrong} />
        {files.length > 0 && (
          <ul className="conversations" aria-label="Files of the message">
            {files.map((f) => (
              <li key={f.name}>
                <Button size="compact-sm" variant="light" aria-label={`Remove ${f.name}`} onClick={() => setFiles(files.filter((o) => o !== f))}>
                  {f.name} ×
                </Button>
              </li>
            ))}
          </ul>
        )}
        {data !== null && (
          <Textarea label="Data as JSON" placeholder='{"city": "Bonn"}' rows={3} classNames={{ input: "mono" }} value={data} onChange={(e) => setData(e.currentTarget.value)} />
        )}
        <Group align="flex-end" gap="xs" wrap="nowrap">
          <Textarea
            aria-label="Message"
            // Who begins a conversation writes next.
            autoFocus={conversation?.turns.length === 0}
            placeholder={waitsForDecision ? (decides ? "Decide first: a tool call waits" : "A tool call waits for an approver") : "Message; Enter sends, Shift Enter begins a line"}
            className="grow"
            rows={2}
            value={text}
            onChange={(e) => setText(e.currentTarget.value)}
            onKeyDown={(e) => {
              if (e.key === "Enter" && !e.shiftKey && !e.nativeEvent.isComposing) {
                e.preventDefault();
                void send();
              }
            }}
          />
          {atWork && (
            <Button variant="light" color="red" onClick={() => cancelTask(atWork.timeline.task).then(() => setWrong(null), setWrong)}>
              Cancel
            </Button>
          )}
          <Button type="submit" disabled={busy || waitsForDecision || empty}>
            Send
          </Button>
        </Group>
        <Group gap="xs" mt="xs">
          <FileButton multiple onChange={(chosen) => setFiles([...files, ...chosen.filter((f) => !files.some((o) => o.name === f.name))])}>
            {(props) => (
              <Button {...props} size="compact-sm" variant="default">
                Add files
              </Button>
            )}
          </FileButton>
          <Button size="compact-sm" variant="default" onClick={() => setData(data === null ? "" : null)}>
            {data === null ? "Add data" : "Remove the data"}
          </Button>
        </Group>
      </form>
    </>
  );
}

function parseData(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw new Error("The data are not valid JSON.");
  }
}

// TurnView shows a turn. cancels says that its task can be cancelled here. That of a turn at work is cancelled beside the message: a
// button below an answer moves while the answer grows, and a press that ends where it no longer is does nothing.
function TurnView({ turn, cancels }: { turn: Turn; cancels: boolean }) {
  const { timeline } = turn;
  const [language, setLanguage] = useState<Language | "">("");
  const [wrong, setWrong] = useState<unknown>(null);
  const [copied, setCopied] = useState("");
  const copyAs = (chosen: Language | "") => {
    setLanguage(chosen);
    setCopied("");
    if (!chosen) return;
    const refuse = () => setCopied("The browser did not allow to copy it. Select the text below.");
    // Browsers have the clipboard on https and localhost only.
    if (!window.isSecureContext) return refuse();
    navigator.clipboard.writeText(program(chosen, turn.call)).then(() => setCopied(`Copied as ${languages[chosen]}`), refuse);
  };
  return (
    <article className="turn">
      <Paper p="sm" className="mine">
        <Parts parts={turn.parts} />
      </Paper>
      <AnswerView entries={timeline.entries} working={timeline.state === "working" ? timeline.task : ""} />
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
        <NativeSelect
          size="xs"
          aria-label="Copy as"
          data={[{ value: "", label: "Copy as" }, ...Object.entries(languages).map(([value, label]) => ({ value, label }))]}
          value={language}
          onChange={(e) => copyAs(e.currentTarget.value as Language | "")}
        />
        {copied && (
          <Text size="sm" role="status">
            {copied}
          </Text>
        )}
        {cancels && timeline.task && !isOver(timeline.state) && (
          <Button size="compact-xs" variant="light" color="red" onClick={() => cancelTask(timeline.task).then(() => setWrong(null), setWrong)}>
            Cancel
          </Button>
        )}
      </Group>
      {language && <Snippet text={program(language, turn.call)} />}
    </article>
  );
}

// program returns a program in a language that makes the call of a turn. Its message has no id, so that each run of it is a new
// message: one with the id of an earlier message is answered with the task of that.
function program(language: Language, call: Call): string {
  const { message } = call.params as { message: object };
  const body = callBody({ ...call, params: { ...call.params, message: { ...message, message_id: undefined } } });
  return asProgram(language, `${location.origin}${base()}/agents/${encodeURIComponent(call.agent)}`, body, !!session.get()?.token);
}
