import type { Schema } from "./api";
import { count, counted } from "./usage";

type Limits = Schema["AppLimits"];
export type Rate = Schema["RateLimit"];

// numbers are the limits that are one number each, with the largest value that the API accepts.
export const numbers = [
  { name: "weight", label: "Weight", says: "Runs in each turn of the queue", most: 100, otherwise: "1" },
  { name: "max_concurrent_tasks", label: "Runs at a time", says: "In all processes together", most: 1_000_000, otherwise: "no bound" },
  { name: "queue_depth", label: "Runs that may wait", says: "Further calls are answered 429", most: 1_000_000, otherwise: "10,000" },
] as const;

// What a rate may be, and how many of them an app may have.
export const ratePer: Rate["per"][] = ["app", "agent", "key"];
export const rateTypes: Rate["type"][] = ["count", "token"];
export const rateWindows: Rate["window"][] = ["minute", "hour", "day", "week", "month"];
export const mostRates = 50;
export const mostRate = 1_000_000_000_000;

export const perWindow = (window: Rate["window"]) => (window === "hour" ? "an hour" : `a ${window}`);

// limitsText says limits in words.
export function limitsText(limits: Limits): string {
  const rates = limits.rate.map((r) => `${counted(r.limit, r.type === "count" ? "call" : "token")} ${perWindow(r.window)} for ${r.agent ? `the agent ${r.agent}` : r.per === "app" ? "the app" : `each ${r.per}`}`);
  const running = limits.max_concurrent_tasks ? `${counted(limits.max_concurrent_tasks, "run")} at a time` : "any number of runs at a time";
  return [`weight ${limits.weight}`, running, `${count(limits.queue_depth)} may wait`, ...rates].join(", ");
}
