import { Badge, Button, Group, NativeSelect, Progress, Skeleton, Stack, Table, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { lazy, Suspense, useMemo } from "react";
import { get, type Schema } from "./api";
import { saveCsv } from "./csv";
import { Empty, Problem, Time } from "./parts";
import { groups, ranges, type Group as By } from "./search";
import { session } from "./session";

const Chart = lazy(() => import("./chart"));

type Sum = Schema["UsageSum"];

const day = 86400;

// dayOf returns a day of UTC as the API writes it.
const dayOf = (seconds: number) => new Date(seconds * 1000).toISOString().slice(0, 10);

// money returns what a sum was charged, by currency.
export function money(sum: Partial<Sum>): string {
  if (sum.charges?.length) return sum.charges.map((c) => `${c.charge_decimal} ${c.currency}`).join(", ");
  return sum.currency ? `${sum.charge_decimal} ${sum.currency}` : "";
}

// UsageView shows what was used: by day as a chart, and by agent, model, user or key as a table. path is where usage is
// read; days and group come from the address. keyNames are the names of keys by id, where the caller may read them.
export function UsageView({ path, days, by, keyNames = {} }: { path: string; days: number; by: By; keyNames?: Record<string, string> }) {
  const who = session.use();
  const today = Math.floor(Date.now() / 1000 / day) * day;
  const from = today - (days - 1) * day;
  const range = `from=${dayOf(from)}&to=${dayOf(today + day)}`;
  const read = (group: string) => ({
    queryKey: ["usage", who, path, range, group],
    queryFn: ({ signal }: { signal: AbortSignal }) => get<Schema["Usage"]>(`${path}?${range}&group_by=${group}`, signal),
    placeholderData: keepPreviousData,
    refetchInterval: 30_000,
  });
  const daily = useQuery(read("day"));
  const grouped = useQuery(read(by));
  const chart = useMemo(() => {
    const rows = new Map(daily.data?.rows.map((r) => [r.day?.slice(0, 10), r]));
    const x = Array.from({ length: days }, (_, i) => from + i * day);
    const pick = (get: (r: Sum) => number) => x.map((d) => (rows.has(dayOf(d)) ? get(rows.get(dayOf(d))!) : 0));
    const currency = daily.data?.totals.currency;
    return {
      x,
      tokens: [
        { label: "tokens in", values: pick((r) => r.input_tokens) },
        { label: "tokens out", values: pick((r) => r.output_tokens) },
      ],
      charge: currency ? [{ label: `charge in ${currency}`, values: pick((r) => (r.charge ?? 0) / 1e9) }] : null,
    };
  }, [daily.data, days, from]);
  const totals = daily.data?.totals;
  if (daily.isPending) return <Skeleton height={300} />;
  return (
    <Stack>
      <Problem error={daily.error ?? grouped.error} retry={() => void daily.refetch()} />
      {totals && (
        <dl className="facts">
          <dt>Tokens</dt>
          <dd>
            {count(totals.input_tokens)} in, {count(totals.output_tokens)} out
          </dd>
          <dt>Calls</dt>
          <dd>
            {count(totals.model_calls)} of models, {count(totals.tool_calls)} of tools, {counted(totals.runs, "run")}
          </dd>
          <dt>Charge</dt>
          <dd>
            {money(totals) || "no prices apply"}
            {money(totals) && totals.unpriced > 0 && `, ${count(totals.unpriced)} without a price`}
          </dd>
        </dl>
      )}
      {totals?.runs === 0 && totals.model_calls === 0 ? (
        <Empty title="Nothing was used in these days">Usage appears here within seconds of a call.</Empty>
      ) : (
        <>
          <Suspense fallback={<Skeleton height={250} />}>
            <Chart label={`Tokens by day, ${days} days`} times={chart.x} of="day" series={chart.tokens} />
            {chart.charge && <Chart label={`Charge by day, ${days} days`} times={chart.x} of="day" series={chart.charge} />}
          </Suspense>
          {!!grouped.data?.rows.length && (
            <div className="scroll" tabIndex={0} role="region" aria-label={`Usage by ${by}`}>
              <Table>
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>{by}</Table.Th>
                    <Table.Th>Tokens in</Table.Th>
                    <Table.Th>Tokens out</Table.Th>
                    <Table.Th>Model calls</Table.Th>
                    <Table.Th>Tool calls</Table.Th>
                    <Table.Th>Runs</Table.Th>
                    <Table.Th>Charge</Table.Th>
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {grouped.data.rows.map((r, i) => (
                    <Table.Tr key={i}>
                      <Table.Td>{[(by === "key" && keyNames[r.key ?? ""]) || r[by], by === "model" && r.provider].filter(Boolean).join(", ") || "none"}</Table.Td>
                      <Table.Td>{count(r.input_tokens)}</Table.Td>
                      <Table.Td>{count(r.output_tokens)}</Table.Td>
                      <Table.Td>{count(r.model_calls)}</Table.Td>
                      <Table.Td>{count(r.tool_calls)}</Table.Td>
                      <Table.Td>{count(r.runs)}</Table.Td>
                      <Table.Td>{money(r)}</Table.Td>
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </div>
          )}
          <Group>
            <Button size="xs" variant="default" disabled={!grouped.data?.rows.length} onClick={() => saveCsv(`usage-by-${by}.csv`, grouped.data?.rows ?? [])}>
              Save as CSV
            </Button>
          </Group>
        </>
      )}
    </Stack>
  );
}

const number = new Intl.NumberFormat("en");
export const count = (n: number) => number.format(n);

// counted returns a number with its noun, given in the singular. What is written decides: 0.9999 is written as 1.
export function counted(n: number, noun: string): string {
  const written = count(n);
  return `${written} ${noun}${written === "1" ? "" : "s"}`;
}

// RangePicker chooses days and group; both stand in the address.
export function RangePicker({ days, by, onChange }: { days: number; by: By; onChange: (next: { days?: number; by?: By }) => void }) {
  return (
    <Group gap="xs">
      <NativeSelect
        aria-label="Days"
        data={ranges.map((d) => ({ value: String(d), label: `${d} days` }))}
        value={String(days)}
        onChange={(e) => onChange({ days: Number(e.currentTarget.value) })}
      />
      <NativeSelect aria-label="Group" data={groups.map((g) => ({ value: g, label: `by ${g}` }))} value={by} onChange={(e) => onChange({ by: e.currentTarget.value as By })} />
    </Group>
  );
}

// Usage is the page of an app's own usage and budgets.
export function Usage() {
  const { days = 30, by = "agent" } = useSearch({ from: "/usage" });
  const navigate = useNavigate();
  const who = session.use();
  const budgets = useQuery({ queryKey: ["budgets", who], queryFn: ({ signal }) => get<Schema["BudgetList"]>("/billing/budgets", signal), refetchInterval: 30_000 });
  return (
    <Stack>
      <Group justify="space-between">
        <Title order={2}>Usage</Title>
        <RangePicker days={days} by={by} onChange={(next) => void navigate({ to: "/usage", search: { days, by, ...next } })} />
      </Group>
      <UsageView path="/billing/usage" days={days} by={by} />
      <Title order={3} size="h4">
        Budgets
      </Title>
      <Problem error={budgets.error} retry={() => void budgets.refetch()} />
      {budgets.data && <Budgets budgets={budgets.data.budgets} />}
    </Stack>
  );
}

// Budgets shows how much of each budget is used. command sets one; it is for the operator alone.
export function Budgets({ budgets, command }: { budgets: Schema["Budget"][]; command?: string }) {
  if (budgets.length === 0) {
    if (!command) return <Text c="dimmed">There are none. The operator sets them.</Text>;
    return (
      <Empty title="There are no budgets" command={command}>
        A budget bounds what is used in a window: tokens, calls of models, or money.
      </Empty>
    );
  }
  return (
    <ul className="problems" aria-label="Budgets">
      {budgets.map((b) => {
        const part = b.amount > 0 ? (b.committed + b.reserved) / b.amount : 1;
        const amount = (n: number, decimal?: string) => (b.unit === "money" ? `${decimal ?? n} ${b.currency ?? ""}`.trim() : `${count(n)} ${b.unit}`);
        return (
          <li key={b.name}>
            <Stack gap={4}>
              <Group gap="xs">
                <Text fw={600} size="sm">
                  {b.name}
                </Text>
                <Text size="sm">
                  {amount(b.committed, b.committed_decimal)} of {amount(b.amount, b.amount_decimal)} a {b.window}
                  {b.reserved > 0 && `, ${amount(b.reserved, b.reserved_decimal)} reserved`}
                </Text>
                <Badge variant="light" color={b.hard ? "red" : "gray"} tt="none">
                  {b.hard ? `then ${b.on_exhausted}s` : "warns only"}
                </Badge>
                {b.resets_at && (
                  <Text size="sm" c="dimmed">
                    begins anew <Time at={b.resets_at} />
                  </Text>
                )}
              </Group>
              <Progress value={Math.min(part, 1) * 100} color={part >= 1 ? "red" : part >= 0.8 ? "orange" : "blue"} aria-label={`Used of ${b.name}`} />
            </Stack>
          </li>
        );
      })}
    </ul>
  );
}
