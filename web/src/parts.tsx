// What several screens show.
import { Alert, Badge, Button, Code, CopyButton, Group, Paper, Stack, Text, Textarea, TextInput, Title } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { ApiError, cancelCall, decide, type Approval, type Part } from "./api";
import { useMay } from "./caller";
import { Interrupted } from "./patience";

const colors: Record<string, string> = {
  submitted: "gray",
  working: "blue",
  input_required: "orange",
  auth_required: "orange",
  completed: "teal",
  failed: "red",
  cancelled: "gray",
  rejected: "red",
};

export function State({ state }: { state: string }) {
  return (
    <Badge variant="light" color={colors[state] ?? "gray"} tt="none">
      {state.replace("_", " ")}
    </Badge>
  );
}

// Notice says what the page does by itself about an interruption.
export function Notice({ error }: { error: Error }) {
  return (
    <Alert color="yellow" variant="light" role="status">
      {error.message}
    </Alert>
  );
}

// Problem shows an error with what to do and the id that finds it in the server's log.
export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  if (!error) return null;
  if (error instanceof Interrupted) return <Notice error={error} />;
  const known = error instanceof ApiError ? error : null;
  return (
    <Alert color="red" variant="light" title={error instanceof Error ? error.message : String(error)} role="alert">
      <Stack gap="xs" align="flex-start">
        {known && <Text size="sm">{known.advice}</Text>}
        {known?.requestId && (
          <Text size="xs" c="dimmed">
            {known.code} · request <Code>{known.requestId}</Code>
          </Text>
        )}
        {retry && (
          <Button size="xs" variant="default" onClick={retry}>
            Try again
          </Button>
        )}
      </Stack>
    </Alert>
  );
}

// Confirm is a button that asks once more before it does what cannot be undone. about names the object for those who
// hear the button alone.
export function Confirm({ label, about, children, loading, disabled, onConfirm }: { label: string; about?: string; children: ReactNode; loading?: boolean; disabled?: boolean; onConfirm: () => void }) {
  const [asked, setAsked] = useState(false);
  const name = about ? `${label} ${about}` : label;
  if (!asked) {
    return (
      <Button size="xs" variant="default" aria-label={name} loading={!!loading} disabled={!!disabled} onClick={() => setAsked(true)}>
        {label}
      </Button>
    );
  }
  return (
    <Paper withBorder p="xs" role="group" aria-label={name}>
      <Group gap="xs">
        <Text size="sm">{children}</Text>
        <Button
          size="xs"
          color="red"
          autoFocus
          onClick={() => {
            setAsked(false);
            onConfirm();
          }}
        >
          {label}
        </Button>
        <Button size="xs" variant="default" onClick={() => setAsked(false)}>
          Cancel
        </Button>
      </Group>
    </Paper>
  );
}

// Empty says what is missing and the next step, with a command where there is one.
export function Empty({ title, children, command }: { title: string; children?: ReactNode; command?: string }) {
  return (
    <Paper withBorder p="lg" className="empty">
      <Stack gap="xs" align="flex-start">
        <Title order={3} size="h4">
          {title}
        </Title>
        <Text c="dimmed">{children}</Text>
        {command && <Snippet text={command} />}
      </Stack>
    </Paper>
  );
}

export function Snippet({ text }: { text: string }) {
  return (
    <div className="snippet">
      <Code block>{text}</Code>
      {/* Browsers allow the clipboard on https and localhost only; elsewhere the text is there to be selected. */}
      {window.isSecureContext && (
        <CopyButton value={text}>
          {({ copied, copy }) => (
            <Button size="compact-xs" variant="default" onClick={copy}>
              {copied ? "Copied" : "Copy"}
            </Button>
          )}
        </CopyButton>
      )}
    </div>
  );
}

// mostJson is how many characters of JSON are drawn before somebody asks for the rest.
const mostJson = 20_000;

export function Json({ value }: { value: unknown }) {
  const [all, setAll] = useState(false);
  const text = JSON.stringify(value, null, 2) ?? "";
  return (
    <>
      <Code block className="json" tabIndex={0}>
        {all ? text : text.slice(0, mostJson)}
      </Code>
      {!all && text.length > mostJson && (
        <Button size="compact-xs" variant="default" onClick={() => setAll(true)}>
          Show the other {(text.length - mostJson).toLocaleString("en")} characters
        </Button>
      )}
    </>
  );
}

// mostShown is how many characters of a text are drawn before somebody asks for the rest.
const mostShown = 4000;

// LongCode shows the beginning of a text that may be long, and the rest on demand.
function LongCode({ text }: { text: string }) {
  const [all, setAll] = useState(false);
  if (all || text.length <= mostShown) return <Code block>{indent(text)}</Code>;
  return (
    <>
      <Code block>{text.slice(0, mostShown)}</Code>
      <Button size="compact-xs" variant="default" onClick={() => setAll(true)}>
        Show the other {(text.length - mostShown).toLocaleString("en")} characters
      </Button>
    </>
  );
}

// Fold shows its content once it is opened.
export function Fold({ title, children }: { title: string; children: () => ReactNode }) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>{title}</summary>
      {open && children()}
    </details>
  );
}

// indent returns JSON text in lines, or the text as it is.
export function indent(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

const steps: [Intl.RelativeTimeFormatUnit, number][] = [
  ["day", 86400],
  ["hour", 3600],
  ["minute", 60],
];
// It counts, because "tomorrow" would be said of whatever is 24 to 36 hours away.
const relative = new Intl.RelativeTimeFormat("en", { numeric: "always" });

// Time is relative, with the exact time on hover.
export function Time({ at }: { at: string }) {
  const seconds = (Date.parse(at) - Date.now()) / 1000;
  const [unit, size] = steps.find(([, size]) => Math.abs(seconds) >= size) ?? ["second", 1];
  const n = Math.round(seconds / size);
  return (
    <time dateTime={at} title={new Date(at).toLocaleString()}>
      {Number.isNaN(n) ? at : n === 0 ? "now" : relative.format(n, unit)}
    </time>
  );
}

// Offset is the time since a beginning, with the exact time on hover.
export function Offset({ at, since }: { at: string; since: string }) {
  const seconds = (Date.parse(at) - Date.parse(since)) / 1000;
  const size = Math.abs(seconds);
  return (
    <time dateTime={at} title={new Date(at).toLocaleString()}>
      {Number.isNaN(seconds) ? at : `${seconds < 0 ? "-" : "+"}${size < 0.001 ? "0 ms" : duration(size)}`}
    </time>
  );
}

// Parts shows what a message or an artifact holds. Everything is text: nothing of it is read as HTML or Markdown.
export function Parts({ parts }: { parts: Part[] }) {
  return parts.map((part, i) => {
    if (part.type === "text") return <div className="text" key={i}>{part.text}</div>;
    if (part.type === "data") return <Json key={i} value={part.data} />;
    return (
      <Text key={i} size="sm">
        File {part.name || "without a name"} ({part.mime_type || "no media type"}) {part.url && <Code>{part.url}</Code>}
      </Text>
    );
  });
}

export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
  result?: string;
  failed?: boolean;
  // seconds is how long the tool ran, ended whether it has, decision what was decided about the call. The log of a task has them.
  seconds?: number;
  ended?: boolean;
  decision?: string;
}

// duration returns seconds as people read them.
export function duration(seconds: number): string {
  if (seconds < 0.001) return "under 1 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  return whole < 3600 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

export function ToolCallView({ call }: { call: ToolCall }) {
  return (
    <Paper withBorder p="xs" className="call">
      <Group gap="xs">
        <Badge variant="light" color="violet" tt="none">
          tool
        </Badge>
        <Text fw={600} size="sm">
          {call.name}
        </Text>
        {call.failed && <Badge color="red" variant="light" tt="none">failed</Badge>}
        {call.decision && <Badge color="orange" variant="light" tt="none">{call.decision}</Badge>}
        {call.seconds !== undefined && (
          <Text size="xs" c="dimmed">
            {duration(call.seconds)}
          </Text>
        )}
      </Group>
      <LongCode text={call.arguments} />
      {call.result !== undefined && (
        <>
          <Text size="xs" c="dimmed">
            Result
          </Text>
          <LongCode text={call.result} />
        </>
      )}
    </Paper>
  );
}

// CancelCall ends one call of a tool; its agent goes on.
export function CancelCall({ task, call }: { task: string; call: { id: string; name: string } }) {
  const cancel = useMutation({ mutationFn: () => cancelCall(task, call.id) });
  return (
    <>
      <Button size="compact-xs" variant="light" color="red" aria-label={`Cancel the call of ${call.name}`} loading={cancel.isPending} onClick={() => cancel.mutate()}>
        Cancel the call
      </Button>
      <Problem error={cancel.error} />
    </>
  );
}

// ApprovalView asks for a decision about one call.
export function ApprovalView({ task, approval, onDecided }: { task: string; approval: Approval; onDecided: () => void }) {
  const text = JSON.stringify(approval.arguments, null, 2);
  const may = useMay("tasks:approve");
  const [draft, setDraft] = useState<string | null>(null);
  const [comment, setComment] = useState("");
  const [wrong, setWrong] = useState("");
  const decision = useMutation({
    mutationFn: (approve: boolean) => {
      const body: { call_id: string; comment?: string; arguments?: Record<string, unknown> } = { call_id: approval.call_id };
      if (comment) body.comment = comment;
      if (approve && draft !== null && draft !== text) body.arguments = JSON.parse(draft) as Record<string, unknown>;
      return decide(task, approve, body);
    },
    onSuccess: onDecided,
  });
  const approve = () => {
    try {
      if (draft !== null) JSON.parse(draft);
    } catch (error) {
      setWrong(error instanceof Error ? error.message : "is no JSON");
      return;
    }
    setWrong("");
    decision.mutate(true);
  };
  return (
    <Paper withBorder p="sm" className="approval" aria-label={`Decision about ${approval.tool}`}>
      <Stack gap="xs">
        <Group gap="xs">
          <Badge color="orange" variant="light" tt="none">
            {approval.kind === "rerun" ? "run again?" : "approve?"}
          </Badge>
          <Text fw={600} size="sm">
            {approval.tool}
          </Text>
          {approval.agent && <Text size="xs" c="dimmed">of {approval.agent}</Text>}
          {approval.expires_at && (
            <Text size="xs" c="dimmed">
              ends <Time at={approval.expires_at} />
            </Text>
          )}
        </Group>
        <Text size="sm" className="text">{approval.prompt}</Text>
        {draft === null ? (
          <Code block>{text}</Code>
        ) : (
          <Textarea
            label="Arguments"
            rows={Math.min(12, draft.split("\n").length + 1)}
            value={draft}
            error={wrong}
            onChange={(e) => setDraft(e.currentTarget.value)}
            className="mono"
          />
        )}
        {!may ? (
          <Text size="sm" c="dimmed">
            It waits for an approver. Your credential has no scope tasks:approve.
          </Text>
        ) : decision.isSuccess ? (
          <Text role="status" size="sm" fw={600} c={decision.variables ? "teal" : "red"}>
            {decision.variables ? "Approved" : "Rejected"}
          </Text>
        ) : (
          <TextInput label="Comment" placeholder="Why; it is kept with the decision" value={comment} onChange={(e) => setComment(e.currentTarget.value)} />
        )}
        <Group gap="xs" display={decision.isSuccess || !may ? "none" : undefined}>
          <Button size="xs" color="teal" loading={decision.isPending} onClick={approve}>
            {draft !== null && draft !== text ? "Approve with edits" : "Approve"}
          </Button>
          <Button size="xs" color="red" variant="light" loading={decision.isPending} onClick={() => decision.mutate(false)}>
            Reject
          </Button>
          <Button size="xs" variant="subtle" onClick={() => setDraft(draft === null ? text : null)}>
            {draft === null ? "Edit arguments" : "Discard the edit"}
          </Button>
        </Group>
        <Problem error={decision.error} />
      </Stack>
    </Paper>
  );
}
