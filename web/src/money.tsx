import { Group, NativeSelect, Skeleton, Stack, Table, Text, TextInput, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { get, type Schema } from "./api";
import { Pages, Rows } from "./lists";
import { Exports, readUsage } from "./overview";
import { Empty, Problem, Time } from "./parts";
import { session } from "./session";
import { Budgets, count, money } from "./usage";

// Money shows what all apps are charged, and by which prices, plans and budgets. It changes nothing: stoa billing does.
export function Money() {
  const who = session.use();
  const { cursor, status, month: ofMonth } = useSearch({ from: "/money" });
  const navigate = useNavigate();
  const month = `${new Date().toISOString().slice(0, 7)}-01`;
  const usage = useQuery({ queryKey: ["usage", who, "all", month], queryFn: ({ signal }) => readUsage(month, signal) });
  const prices = useQuery({ queryKey: ["prices", who], queryFn: ({ signal }) => get<Schema["PriceList"]>("/admin/prices", signal) });
  const plans = useQuery({ queryKey: ["plans", who], queryFn: ({ signal }) => get<Schema["PlanList"]>("/admin/plans", signal) });
  const budgets = useQuery({ queryKey: ["budgets", who, "all"], queryFn: ({ signal }) => get<Schema["BudgetList"]>("/admin/budgets", signal) });
  const exports = useQuery({ queryKey: ["exports", who], queryFn: ({ signal }) => get<Schema["ExportList"]>("/admin/exports", signal) });
  const drafts = status === "draft";
  const query = new URLSearchParams({ page_size: "50", ...(drafts && { status: "draft" }), ...(ofMonth && { month: ofMonth }), ...(cursor && { page_token: cursor }) });
  const go = (next: { status?: string; month?: string; cursor?: string }) => void navigate({ to: "/money", search: next });
  const selection = { ...(drafts && { status: "draft" }), ...(ofMonth && { month: ofMonth }) };
  const invoices = useQuery({
    queryKey: ["invoices", who, query.toString()],
    queryFn: ({ signal }) => get<Schema["InvoicePage"]>(`/admin/invoices?${query}`, signal),
    placeholderData: keepPreviousData,
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
      {budgets.data && <Budgets budgets={budgets.data.budgets} command="stoa billing budget add budget.json" />}
      <Title order={3} size="h4">
        Price books
      </Title>
      {prices.data?.prices.length === 0 && (
        <Empty title="There are no prices yet" command="stoa billing price add prices.json">
          Nothing is charged until there is a price book.
        </Empty>
      )}
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
        <Empty title="There are no plans yet" command="stoa billing plan add plan.json">
          A plan has limits, a base fee, what it includes, taxes and the time zone of its months.
        </Empty>
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
      <Group gap="xs" align="flex-end">
        <NativeSelect
          label="Invoices that are"
          data={[{ value: "", label: "final" }, { value: "draft", label: "drafts" }]}
          value={drafts ? "draft" : ""}
          onChange={(e) => go({ ...(e.currentTarget.value && { status: e.currentTarget.value }), ...(ofMonth && { month: ofMonth }) })}
        />
        <TextInput
          type="month"
          label="Month"
          value={ofMonth ?? ""}
          onChange={(e) => go({ ...(drafts && { status: "draft" }), ...(e.currentTarget.value && { month: e.currentTarget.value }) })}
        />
      </Group>
      {invoices.data?.invoices.length === 0 && !invoices.data.next_page_token && !cursor && (
        <Empty title={drafts ? "There are no drafts" : ofMonth ? "There are no final invoices of this month" : "There are no final invoices yet"} command={drafts ? "stoa billing price add prices.json" : "stoa billing invoice finalize APP MONTH"}>
          {drafts ? (
            "An app has a draft for each month in which it used something, from the first price book on."
          ) : (
            <>
              An invoice is final when its month is over and somebody has made it so. Until then{" "}
              <Link to="/money" search={{ ...selection, status: "draft" }}>
                it is a draft
              </Link>
              .
            </>
          )}
        </Empty>
      )}
      {!!invoices.data?.invoices.length && (
        <Rows label="Invoices" head={["Number", "App", "Month", "Status", "Due"]}>
          {invoices.data.invoices.map((v) => (
            <Table.Tr key={`${v.app_id} ${v.id}`}>
              <Table.Td>
                {/* The id finds the invoices of a deleted app too; a draft is of an app that is there, by its name. */}
                <Link to="/money/$app/$invoice" params={{ app: v.status === "draft" ? v.app : v.app_id, invoice: v.id }}>
                  {v.number ?? v.id}
                </Link>
              </Table.Td>
              <Table.Td>{v.app}</Table.Td>
              <Table.Td>{v.period.from.slice(0, 7)}</Table.Td>
              <Table.Td>{v.kind === "credit_note" ? "credit note" : v.status}</Table.Td>
              <Table.Td>{v.totals?.map((t) => `${t.due_decimal} ${t.currency}`).join(", ")}</Table.Td>
            </Table.Tr>
          ))}
        </Rows>
      )}
      <Pages cursor={cursor} next={invoices.data?.next_page_token} onChange={(next) => go({ ...selection, ...(next && { cursor: next }) })} />
      <Title order={3} size="h4">
        Exports
      </Title>
      <Exports exports={exports.data?.exports ?? []} />
      <Text size="sm" c="dimmed">
        Prices, plans, budgets, credits and invoices are changed with stoa billing or the admin API.
      </Text>
    </Stack>
  );
}
