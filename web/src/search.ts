// What the addresses of lazily loaded screens may say.

export const groups = ["agent", "model", "user", "key"] as const;
export type Group = (typeof groups)[number];

export const ranges = [7, 30, 90];

export interface UsageSearch {
  days?: number;
  by?: Group;
}

export function usageSearch(s: Record<string, unknown>): UsageSearch {
  const by = groups.find((g) => g === s["by"]);
  return { ...(typeof s["days"] === "number" && ranges.includes(s["days"]) && { days: s["days"] }), ...(by && { by }) };
}
