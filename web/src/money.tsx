import { Group, Skeleton, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { get, type Schema } from "./api";
import { Pages, Rows } from "./lists";
import { Exports, readUsage } from "./overview";
import { Problem, Time } from "./parts";
import { session } from "./session";
import { Budgets, count, money } from "./usage";

// Money shows what all apps are charged, and by which prices, plans and budgets. It changes nothing: stoa billing does.
export function Money() {
  const who = session.use();
  const { cursor } = useSearch({ from: "/money" });
  const navigate = useNavigate();
  const month = `${new Date().toISOString().slice(0, 7)}-01`;
  const usage = useQuery({ queryKey: ["usage", who, "all", month], queryFn: ({ signal }) => readUsage(month, signal) });
  const prices = useQuery({ queryKey: ["prices", who], queryFn: ({ signal }) => get<Schema["PriceList"]>("/admin/prices", signal) });
  const plans = useQuery({ queryKey: ["plans", who], queryFn: ({ signal }) => get<Schema["PlanList"]>("/admin/plans", signal) });
  const budgets = useQuery({ queryKey: ["budgets", who, "all"], queryFn: ({ signal }) => get<Schema["BudgetList"]>("/admin/budgets", signal) });
  const exports = useQuery({ queryKey: ["exports", who], queryFn: ({ signal }) => get<Schema["ExportList"]>("/admin/exports", signal) });
  const invoices = useQuery({
    queryKey: ["invoices", who, cursor],
    queryFn: ({ signal }) => get<Schema["InvoicePage"]>(`/admin/invoices?page_size=50${cursor ? `&page_token=${encodeURIComponent(cursor)}` : ""}`, signal),
  });
  if (usage.isPending) return <Skeleton height={400} />;
  return (
    <Stack>
      <Title order={2}>Money</Title>
      <Problem error={usage.error ?? prices.error ?? plans.error ?? budgets.error ?? invoices.error ?? exports.error} retry={() => void usage.refetch()} />
      <Title order={3} size="h4">
        This month, by app
      </Title>
      {usage.data?.totals && (
        <Text size="sm">
          In all {money(usage.data.totals) || "nothing"}
          {usage.data.totals.unpriced > 0 && `, and ${count(usage.data.totals.unpriced)} records without a price`}
          {usage.data.more && ". The table has the first 1,000 apps"}
        </Text>
      )}
      {!!usage.data?.rows.length && (
        <Rows label="Charges by app" head={["App", "Tokens", "Runs", "Charge", "Cost"]}>
          {usage.data.rows
            .toSorted((a, b) => (b.charge ?? 0) - (a.charge ?? 0))
            .map((r) => (
              <Table.Tr key={r.app_id}>
                <Table.Td>
                  <Link to="/apps/$app" params={{ app: r.app }}>
                    {r.app}
                  </Link>
                </Table.Td>
                <Table.Td>{count(r.input_tokens + r.output_tokens)}</Table.Td>
                <Table.Td>{count(r.runs)}</Table.Td>
                <Table.Td>{money(r)}</Table.Td>
                <Table.Td>{r.currency ? `${r.cost_decimal ?? "0"} ${r.currency}` : ""}</Table.Td>
              </Table.Tr>
            ))}
        </Rows>
      )}
      <Title order={3} size="h4">
        Budgets for all apps together
      </Title>
      {budgets.data && <Budgets budgets={budgets.data.budgets} />}
      <Title order={3} size="h4">
        Price books
      </Title>
      {prices.data?.prices.length === 0 && <Text c="dimmed">There are none, so that nothing is charged.</Text>}
      {prices.data?.prices.map((p) => (
        <details key={p.version}>
          <summary>
            {p.version}, in {p.currency}, since <Time at={p.effective_from} />
          </summary>
          <Rows label={`Prices of ${p.version}`} head={["Kind", "Meter", "Provider and model", "Amount", "Per"]}>
            {p.items.map((item, i) => (
              <Table.Tr key={i}>
                <Table.Td>{item.kind}</Table.Td>
                <Table.Td>{item.meter}</Table.Td>
                <Table.Td>{[item.provider, item.model].filter(Boolean).join(", ") || "all"}</Table.Td>
                <Table.Td>{item.amount_decimal ?? item.amount}</Table.Td>
                <Table.Td>{count(item.per)}</Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        </details>
      ))}
      <Title order={3} size="h4">
        Plans
      </Title>
      {plans.data?.plans.length === 0 ? (
        <Text c="dimmed">There are none.</Text>
      ) : (
        <Rows label="Plans" head={["Plan", "Base fee", "Tasks at a time", "Queue", "Weight"]}>
          {plans.data?.plans.map((p) => (
            <Table.Tr key={p.name}>
              <Table.Td>{p.name}</Table.Td>
              <Table.Td>
                {p.base_fee_decimal} {p.currency}
              </Table.Td>
              <Table.Td>{p.max_concurrent_tasks || "no bound"}</Table.Td>
              <Table.Td>{count(p.queue_depth)}</Table.Td>
              <Table.Td>{p.weight}</Table.Td>
            </Table.Tr>
          ))}
        </Rows>
      )}
      <Title order={3} size="h4">
        Invoices
      </Title>
      {invoices.data?.invoices.length === 0 && <Text c="dimmed">There are none.</Text>}
      {!!invoices.data?.invoices.length && (
        <Rows label="Invoices" head={["Number", "App", "Month", "Status", "Due"]}>
          {invoices.data.invoices.map((v) => (
            <Table.Tr key={v.id}>
              <Table.Td>{v.number ?? "draft"}</Table.Td>
              <Table.Td>{v.app}</Table.Td>
              <Table.Td>{v.period.from.slice(0, 7)}</Table.Td>
              <Table.Td>{v.kind === "credit_note" ? "credit note" : v.status}</Table.Td>
              <Table.Td>{v.totals?.map((t) => `${t.due_decimal} ${t.currency}`).join(", ")}</Table.Td>
            </Table.Tr>
          ))}
        </Rows>
      )}
      <Pages cursor={cursor} next={invoices.data?.next_page_token} onChange={(next) => void navigate({ to: "/money", search: next ? { cursor: next } : {} })} />
      <Title order={3} size="h4">
        Exports
      </Title>
      <Exports exports={exports.data?.exports ?? []} />
      <Group>
        <Text size="sm" c="dimmed">
          Prices, plans, budgets, credits and invoices are changed with stoa billing or the admin API.
        </Text>
      </Group>
    </Stack>
  );
}
