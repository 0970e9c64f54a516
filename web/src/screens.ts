import { has, type Caller } from "./caller";
import type { Session } from "./session";

// anyOf are the scopes of which a screen needs one; none = every caller has it.
const ofApp = [
  { to: "/playground", name: "Playground", anyOf: ["agents:call"] },
  { to: "/agents", name: "Agents", anyOf: [] },
  { to: "/tasks", name: "Tasks", anyOf: ["tasks:read", "agents:call"] },
  { to: "/inbox", name: "Inbox", anyOf: ["tasks:approve"] },
  { to: "/config", name: "Configuration", anyOf: ["config:read"] },
  { to: "/documents", name: "Documents", anyOf: ["documents:read"] },
  { to: "/triggers", name: "Triggers", anyOf: ["tasks:read"] },
  { to: "/usage", name: "Usage", anyOf: ["usage:read"] },
] as const;

const ofOperator = [
  { to: "/overview", name: "Overview" },
  { to: "/apps", name: "Apps" },
  { to: "/queue", name: "Queue" },
  { to: "/money", name: "Money" },
  { to: "/audit", name: "Audit" },
  { to: "/system", name: "System" },
] as const;

const isAllowed = (anyOf: readonly string[], caller: Caller) => anyOf.length === 0 || anyOf.some((scope) => has(caller, scope));

// screensOf returns the screens of a session's point of view: of an app those that its credential allows. Without a caller all are
// returned, and the server decides.
export function screensOf(s: Session | null, caller?: Caller) {
  if (s?.operator) return ofOperator;
  return caller ? ofApp.filter((screen) => isAllowed(screen.anyOf, caller)) : ofApp;
}

// homeOf returns the screen with which a caller of an app begins: who may only decide begins with what waits.
export function homeOf(caller: Caller) {
  const allowed = screensOf(null, caller).map((screen) => screen.to);
  return (["/playground", "/inbox"] as const).find((to) => allowed.includes(to)) ?? allowed[0] ?? "/agents";
}

// isOperatorScreen reports whether a path belongs to the operator's point of view.
export const isOperatorScreen = (path: string) => ofOperator.some((screen) => path === screen.to || path.startsWith(`${screen.to}/`));
