// What the addresses of lazily loaded screens may say.

export const groups = ["agent", "model", "user", "key"] as const;
export type Group = (typeof groups)[number];

// windows are how many minutes of calls the overview shows.
export const windows = [5, 15, 60];

export interface OverviewSearch {
  minutes?: number;
}

export function overviewSearch(s: Record<string, unknown>): OverviewSearch {
  return typeof s["minutes"] === "number" && windows.includes(s["minutes"]) ? { minutes: s["minutes"] } : {};
}

export const ranges = [7, 30, 90];

export interface UsageSearch {
  days?: number;
  by?: Group;
}

export function usageSearch(s: Record<string, unknown>): UsageSearch {
  const by = groups.find((g) => g === s["by"]);
  return { ...(typeof s["days"] === "number" && ranges.includes(s["days"]) && { days: s["days"] }), ...(by && { by }) };
}

export const appTabs = ["facts", "configuration", "access", "usage", "settings"] as const;

export interface AppSearch extends UsageSearch {
  tab?: (typeof appTabs)[number];
  revision?: number | "saved";
}

export function appSearch(s: Record<string, unknown>): AppSearch {
  const tab = appTabs.find((t) => t === s["tab"]);
  const revision = s["revision"];
  return { ...usageSearch(s), ...(tab && { tab }), ...((typeof revision === "number" || revision === "saved") && { revision }) };
}

export interface AuditSearch {
  app?: string;
  actor?: string;
  action?: string;
  since?: string;
  until?: string;
  cursor?: string;
}

// texts returns a reader of the addresses of a list: those of the names that are texts.
export function texts<const N extends string>(...names: N[]) {
  return (s: Record<string, unknown>) =>
    Object.fromEntries(names.flatMap((n) => (typeof s[n] === "string" && s[n] !== "" ? [[n, s[n]]] : typeof s[n] === "number" ? [[n, String(s[n])]] : []))) as { [name in N]?: string };
}
