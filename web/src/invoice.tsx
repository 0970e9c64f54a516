import { Badge, Button, Code, Group, Skeleton, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { download, get, type Schema } from "./api";
import { Rows } from "./lists";
import { Problem } from "./parts";
import { session } from "./session";
import { count, counted } from "./usage";

type Invoice = Schema["Invoice"];
type Line = Schema["InvoiceLine"];

const formats = ["csv", "txt", "html", "json"];

// InvoicePage shows an invoice or a credit note as it can be printed, and saves it in the forms in which the server has it.
export function InvoicePage() {
  const who = session.use();
  const { app, invoice } = useParams({ from: "/money/$app/$invoice" });
  const path = `/admin/apps/${encodeURIComponent(app)}/invoices/${encodeURIComponent(invoice)}`;
  const read = useQuery({ queryKey: ["invoice", who, app, invoice], queryFn: ({ signal }) => get<Invoice>(path, signal) });
  const [failed, setFailed] = useState<unknown>(null);
  if (read.isPending) return <Skeleton height={400} />;
  if (!read.data) return <Problem error={read.error} retry={() => void read.refetch()} />;
  const v = read.data;
  const save = (format: string) => download(`${path}.${format}`, `${v.number ? `invoice-${v.number}` : `${v.app}-${v.id}`}.${format}`).then(() => setFailed(null), setFailed);
  return (
    <Stack>
      <Group justify="space-between">
        <Group gap="xs">
          <Title order={2}>{titleOf(v)}</Title>
          {v.status !== "final" && (
            <Badge variant="light" color={v.status === "draft" ? "gray" : "red"} tt="none">
              {v.status}
            </Badge>
          )}
        </Group>
        <Group gap="xs" className="noprint">
          <Button size="xs" onClick={() => window.print()}>
            Print
          </Button>
          <Text size="sm" c="dimmed">
            Save as
          </Text>
          {formats.map((format) => (
            <Button key={format} size="xs" variant="default" aria-label={`Save as ${format}`} onClick={() => void save(format)}>
              {format}
            </Button>
          ))}
        </Group>
      </Group>
      <Problem error={failed} />
      {v.status === "draft" && (
        <Text size="sm" className="noprint">
          It has no number yet, and changes until it is made final: <Code>stoa billing invoice finalize {v.app} {v.id}</Code>
        </Text>
      )}
      <Group align="flex-start" gap="4rem">
        <PartyView role="From" party={v.seller} />
        <PartyView role="To" party={v.buyer} />
      </Group>
      <dl className="facts">
        <dt>App</dt>
        <dd>{v.app}</dd>
        {v.plan && <dt>Plan</dt>}
        {v.plan && <dd>{v.plan}</dd>}
        <dt>Period</dt>
        <dd>
          {dayIn(v.period.timezone, v.period.from)} to {dayIn(v.period.timezone, v.period.to, -1)} ({v.period.timezone})
        </dd>
        {v.finalized_at && <dt>Made on</dt>}
        {v.finalized_at && <dd>{dayIn(v.period.timezone, v.finalized_at)}</dd>}
        {v.unpriced_calls ? <dt>Without a price</dt> : null}
        {v.unpriced_calls ? <dd>{counted(v.unpriced_calls, "call")}</dd> : null}
      </dl>
      <Relatives app={app} invoice={v} />
      <Rows label="Lines" head={["For", "Used", "Charge"]}>
        {v.lines?.map((line, i) => (
          <Table.Tr key={i}>
            <Table.Td>{subjectOf(line)}</Table.Td>
            <Table.Td>{usedBy(line)}</Table.Td>
            <Table.Td>{line.unpriced && !line.charge ? "without a price" : `${line.charge_decimal} ${line.currency}`}</Table.Td>
          </Table.Tr>
        ))}
      </Rows>
      <Totals invoice={v} />
      {v.seller?.note && <Text size="sm">{v.seller.note}</Text>}
    </Stack>
  );
}

const titleOf = (v: Invoice) => (v.status === "draft" ? `Draft of ${v.id}` : `${v.kind === "credit_note" ? "Credit note" : "Invoice"} ${v.number ?? v.id}`);

// dayIn returns the day of a time in a zone, as YYYY-MM-DD. The end of a period is a millisecond after its last day.
const dayIn = (timeZone: string, at: string, milliseconds = 0) => new Intl.DateTimeFormat("en-CA", { timeZone }).format(new Date(at).getTime() + milliseconds);

// subjectOf says what a line charges.
function subjectOf(line: Line): string {
  const subject = line.kind === "base_fee" || line.kind === "plan" ? [line.kind === "base_fee" ? "Base fee" : "Plan", line.plan, line.meter?.replaceAll("_", " ")] : [line.kind, [line.provider, line.model].filter(Boolean).join(" ")];
  return subject.filter(Boolean).join(", ") + (line.late ? ", of an earlier month" : "") + (line.estimated ? ", estimated" : "");
}

// usedBy returns the quantities of a line.
function usedBy(line: Line): string {
  const used = Object.entries(line.usage ?? {}).map(([meter, n]) => counted(n, meter.replaceAll("_", " ").replace(/s$/, "")));
  if (line.quantity !== undefined) used.push(`${count(line.quantity)}${line.included ? `, of which ${count(line.included)} ${line.included === 1 ? "is" : "are"} included` : ""}`);
  if (line.amount_decimal) used.push(`${line.amount_decimal} ${line.currency} per ${count(line.per ?? 1)}`);
  return used.join(", ");
}

function PartyView({ role, party }: { role: string; party: Schema["InvoiceParty"] | undefined }) {
  if (!party) return null;
  return (
    <div>
      <Text size="sm" c="dimmed">
        {role}
      </Text>
      {[party.name, ...(party.address ?? []), party.tax_id, party.email].filter(Boolean).map((text, i) => (
        <Text key={i} size="sm" fw={i === 0 ? 600 : 400}>
          {text}
        </Text>
      ))}
    </div>
  );
}

// Relatives leads to the invoices that an invoice corrects, or that correct it.
function Relatives({ app, invoice: v }: { app: string; invoice: Invoice }) {
  const relatives = [
    ["Takes back", v.reverses],
    ["Taken back by", v.reversed_by],
    ["Replaces", v.replaces],
    ["Replaced by", v.replaced_by],
  ] as const;
  return (
    <Group>
      {relatives.map(
        ([role, id]) =>
          id && (
            <Text key={role} size="sm">
              {role}{" "}
              <Link to="/money/$app/$invoice" params={{ app, invoice: id }}>
                {id}
              </Link>
            </Text>
          ),
      )}
    </Group>
  );
}

// Totals shows what the lines amount to, by currency, up to what is due.
function Totals({ invoice: v }: { invoice: Invoice }) {
  return v.totals?.map((t) => {
    const rows: [string, string, boolean][] = [
      ["Charge", t.charge_decimal, true],
      ["Credits", `-${t.credits_decimal}`, t.credits !== 0],
      ["Carried from earlier invoices", t.carried_decimal, t.carried !== 0],
      ["Net", t.net_decimal, true],
      ...(v.taxes ?? []).filter((tax) => tax.currency === t.currency).map((tax): [string, string, boolean] => [`${tax.name} ${tax.percent}% of ${tax.net_decimal}`, tax.amount_decimal, true]),
      ["Due", t.due_decimal, true],
      ["Left to the next invoice", t.remainder_decimal, t.remainder !== 0],
    ];
    return (
      <dl key={t.currency} className="facts" aria-label={`Totals in ${t.currency}`}>
        {rows
          .filter(([, , shown]) => shown)
          .flatMap(([name, amount]) => [
            <dt key={name}>{name}</dt>,
            <dd key={`${name} amount`}>
              {name === "Due" ? <strong>{`${amount} ${t.currency}`}</strong> : `${amount} ${t.currency}`}
            </dd>,
          ])}
      </dl>
    );
  });
}
