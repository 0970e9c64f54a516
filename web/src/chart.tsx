// Charts over time. They are loaded with the first screen that has one.
import "uplot/dist/uPlot.min.css";
import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef } from "react";
import UPlot from "uplot";

export interface Series {
  label: string;
  values: number[];
}

export interface ChartProps {
  // label says what the chart shows, for those who do not see it. A table has the numbers.
  label: string;
  // times are those of the values, in seconds since 1970; each is the beginning of a day or a minute.
  times: number[];
  of: "day" | "minute";
  series: Series[];
}

// The colours differ in lightness as well, and have a contrast of at least 3 with both schemes.
const colours = { light: ["#1864ab", "#c2410c", "#087f5b"], dark: ["#74b5f5", "#f0a060", "#4fd1a5"] };

// whole are distances of ticks for what is counted by the piece.
const whole = Array.from({ length: 12 }, (_, i) => [1, 2, 5].map((n) => n * 10 ** i)).flat();

export default function Chart({ label, times, of, series }: ChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const scheme = useComputedColorScheme("light");
  useEffect(() => {
    const element = host.current!;
    const style = getComputedStyle(element);
    const axis = { stroke: style.getPropertyValue("--mantine-color-text"), grid: { stroke: style.getPropertyValue("--mantine-color-default-border"), width: 1 } };
    const plot = new UPlot(
      {
        width: element.clientWidth,
        height: 220,
        scales: { x: { time: true }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
        axes: [{ ...axis, ...(of === "minute" && { values: "{HH}:{mm}" }) }, { ...axis, size: 64, ...(of === "minute" && { incrs: whole }), values: (_, ticks) => ticks.map((t) => short.format(t)) }],
        series: [
          { value: of === "day" ? "{YYYY}-{MM}-{DD}" : "{HH}:{mm}" },
          ...series.map((s, i) => ({ label: s.label, stroke: colours[scheme][i % 3]!, width: 2, points: { show: true, size: 6 }, value: (_: UPlot, v: number | null) => (v === null ? "" : short.format(v)) })),
        ],
        // Usage is summed by days of UTC, and calls by minutes of UTC.
        tzDate: (seconds) => UPlot.tzDate(new Date(seconds * 1000), "UTC"),
      },
      [times, ...series.map((s) => s.values)],
      element,
    );
    const resized = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: 220 }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      plot.destroy();
    };
  }, [times, of, series, scheme]);
  return <div ref={host} role="img" aria-label={label} className="chart" />;
}

const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
