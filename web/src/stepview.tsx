// How a step of a task is drawn.
import { Badge, Button, Group, Paper, Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { post, type Task } from "./api";
import { duration, Json, Problem } from "./parts";
import type { Citation, Fact, LogEntry, Step } from "./tasklog";
import { EntryView } from "./timelineview";

const count = (n: number) => n.toLocaleString("en");

// StepView shows a step. restorable is the task if it may be restored from its checkpoints, else "".
export function StepView({ step, restorable }: { step: Step; restorable: string }) {
  switch (step.kind) {
    case "model_call":
      return <ModelCallView call={step.call} agent={step.agent} />;
    case "finding":
      return (
        <Line label="guardrail" color={step.finding.action === "block" ? "red" : "yellow"}>
          {step.finding.guardrail}: rule {step.finding.rule} of the {step.finding.phase}, {step.finding.action}, {step.finding.severity} severity
          {step.finding.shadow ? ", recorded only" : ""}
        </Line>
      );
    case "checkpoint":
      return <CheckpointView checkpoint={step.checkpoint} restorable={restorable} />;
    case "attempt":
      return (
        <Line label={`attempt ${step.attempt.number}`} color="red">
          {step.attempt.interrupted ? "" : "The attempt before failed: "}
          {step.attempt.reason}
          {step.attempt.delay_seconds > 0 ? ` It is tried again after ${duration(step.attempt.delay_seconds)}.` : ""}
        </Line>
      );
    case "decision":
      return <DecisionView decision={step.decision} />;
    case "citations":
      return <Citations list={step.list} />;
    case "raw":
      return <Json value={step.value} />;
    default:
      return <EntryView entry={step} />;
  }
}

function Line({ label, color, children }: { label: string; color: string; children: ReactNode }) {
  return (
    <Group gap="xs">
      <Badge variant="light" color={color} tt="none">
        {label}
      </Badge>
      <Text size="sm">{children}</Text>
    </Group>
  );
}

function ModelCallView({ call, agent }: { call: Extract<Fact, { kind: "model_call" }>["call"]; agent: string }) {
  const facts = [
    `${count(call.input_tokens)} in, ${count(call.output_tokens)} out`,
    call.cache_read_tokens ? `${count(call.cache_read_tokens)} cached` : "",
    call.reasoning_tokens ? `${count(call.reasoning_tokens)} reasoning` : "",
    call.estimated ? "estimated" : "",
    call.seconds === undefined ? "" : duration(call.seconds),
    call.charge_decimal ? `${call.charge_decimal} ${call.currency}` : "",
    call.retries ? `${call.retries} ${call.retries === 1 ? "retry" : "retries"}` : "",
    call.fallback ? "as the fallback of another model" : "",
    agent ? `for ${agent}` : "",
  ];
  return (
    <Line label="model" color="cyan">
      {call.model || call.provider}: {facts.filter(Boolean).join(" · ")}
    </Line>
  );
}

const reasons: Record<string, string> = { start: "the start of a run", before_llm: "before a model call", after_tools: "after tools", interval: "by interval" };

function CheckpointView({ checkpoint, restorable }: { checkpoint: NonNullable<LogEntry["checkpoint"]>; restorable: string }) {
  const navigate = useNavigate();
  const restore = useMutation({
    mutationFn: () => post<Task>(`/tasks/${encodeURIComponent(restorable)}/checkpoints/${checkpoint.id}:restore`),
    onSuccess: (task) => navigate({ to: "/tasks/$task", params: { task: task.task_id } }),
  });
  return (
    <>
      <Group gap="xs">
        <Line label="checkpoint" color="gray">
          {reasons[checkpoint.reason] ?? checkpoint.reason}, step {checkpoint.step}
          {checkpoint.agent ? ` of ${checkpoint.agent}` : ""}
        </Line>
        {restorable && (
          <Button size="compact-xs" variant="default" loading={restore.isPending} onClick={() => restore.mutate()} aria-label={`Restore from here, checkpoint ${checkpoint.id}`}>
            Restore from here
          </Button>
        )}
      </Group>
      <Problem error={restore.error} />
    </>
  );
}

function DecisionView({ decision }: { decision: NonNullable<LogEntry["decision"]> }) {
  const words = { approve: "The call was approved", reject: "The call was rejected", expire: "Nobody decided in time", supply: "The credential was supplied" };
  return (
    <Line label="decision" color="orange">
      {words[decision.outcome]}
      {decision.user ? ` by ${decision.user}` : ""}
      {decision.arguments ? ", with other arguments" : ""}
      {decision.comment ? `: ${decision.comment}` : ""}
    </Line>
  );
}

function Citations({ list }: { list: Citation[] }) {
  return (
    <Paper withBorder p="xs" className="call">
      {list.map((c) => (
        <div key={c.n}>
          <Text size="sm">
            [{c.n}] {c.title || c.document} ({[c.store, c.page ? `page ${c.page}` : "", c.heading ?? ""].filter(Boolean).join(", ")})
          </Text>
          <Text size="xs" c="dimmed" component="blockquote" m={0} className="text">
            {c.quote}
          </Text>
        </div>
      ))}
    </Paper>
  );
}
