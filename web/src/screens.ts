import type { Session } from "./session";

const ofApp = [
  { to: "/playground", name: "Playground" },
  { to: "/agents", name: "Agents" },
  { to: "/tasks", name: "Tasks" },
  { to: "/inbox", name: "Inbox" },
  { to: "/config", name: "Configuration" },
  { to: "/documents", name: "Documents" },
  { to: "/triggers", name: "Triggers" },
  { to: "/usage", name: "Usage" },
] as const;

const ofOperator = [
  { to: "/overview", name: "Overview" },
  { to: "/apps", name: "Apps" },
  { to: "/queue", name: "Queue" },
  { to: "/money", name: "Money" },
  { to: "/audit", name: "Audit" },
  { to: "/system", name: "System" },
] as const;

// screensOf returns the screens of a session's point of view.
export const screensOf = (s: Session | null) => (s?.operator ? ofOperator : ofApp);

// isOperatorScreen reports whether a path belongs to the operator's point of view.
export const isOperatorScreen = (path: string) => ofOperator.some((screen) => path === screen.to || path.startsWith(`${screen.to}/`));
