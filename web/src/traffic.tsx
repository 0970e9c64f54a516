import { Skeleton, Table, Text } from "@mantine/core";
import { lazy, Suspense, useMemo } from "react";
import type { Schema } from "./api";
import { Rows } from "./lists";
import { Fold } from "./parts";
import { count, counted } from "./usage";

const Chart = lazy(() => import("./chart"));

// clock returns the minute of a day in UTC.
const clock = (minute: string) => minute.slice(11, 16);

// summary says in words what the chart shows.
function summary(series: Schema["TrafficMinute"][]): string {
  const busiest = series.reduce((most, m) => (m.calls > most.calls ? m : most));
  if (busiest.calls === 0) return `There were no calls in ${counted(series.length, "minute")}.`;
  const sum = (pick: (m: Schema["TrafficMinute"]) => number) => count(series.reduce((n, m) => n + pick(m), 0));
  return `${counted(busiest.calls, "call")} in the busiest minute, ${clock(busiest.minute)} UTC; of ${sum((m) => m.calls)} in ${counted(series.length, "minute")}, ${sum((m) => m.failed)} failed and ${sum((m) => m.refused)} were refused by limits. The last minute is not over.`;
}

// TrafficChart shows the calls of each minute as a chart, in words, and as a table.
export function TrafficChart({ series }: { series: Schema["TrafficMinute"][] }) {
  const chart = useMemo(
    () => ({
      times: series.map((m) => Date.parse(m.minute) / 1000),
      lines: [
        { label: "calls", values: series.map((m) => m.calls) },
        { label: "failed", values: series.map((m) => m.failed) },
        { label: "refused", values: series.map((m) => m.refused) },
      ],
    }),
    [series],
  );
  if (series.length === 0) return null;
  return (
    <figure className="figure" aria-labelledby="traffic">
      <Suspense fallback={<Skeleton height={250} />}>
        <Chart label={`Calls per minute, ${counted(series.length, "minute")}`} times={chart.times} of="minute" series={chart.lines} />
      </Suspense>
      <figcaption id="traffic">
        <Text size="sm">Calls per minute. {summary(series)}</Text>
      </figcaption>
      <Fold title="Calls per minute as a table">
        {() => (
          <Rows label="Calls per minute" head={["Minute (UTC)", "Calls", "Failed", "Refused", "Rejected"]}>
            {series.toReversed().map((m) => (
              <Table.Tr key={m.minute}>
                <Table.Td>{clock(m.minute)}</Table.Td>
                <Table.Td>{count(m.calls)}</Table.Td>
                <Table.Td>{count(m.failed)}</Table.Td>
                <Table.Td>{count(m.refused)}</Table.Td>
                <Table.Td>{count(m.rejected)}</Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        )}
      </Fold>
    </figure>
  );
}
