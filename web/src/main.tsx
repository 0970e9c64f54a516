import "@mantine/core/styles.css";
import "./console.css";
import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect, RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Agent, Agents } from "./agents";
import { ApiError } from "./api";
import { resumeConversations } from "./conversations";
import { receiveSession } from "./handover";
import { Inbox } from "./inbox";
import { Root } from "./layout";
import { Empty, Problem } from "./parts";
import { Playground } from "./playground";
import { appSearch, overviewSearch, texts, usageSearch } from "./search";
import { session } from "./session";
import { Tasks } from "./tasks";

const text = (value: unknown) => (typeof value === "string" && value !== "" ? value : undefined);

const root = createRootRoute({
  component: Root,
  notFoundComponent: () => <Empty title="There is no such page">Choose one above.</Empty>,
  errorComponent: ({ error }) => <Problem error={error} retry={() => location.reload()} />,
});
const at = <const P extends string, C extends () => React.ReactNode>(path: P, component: C) => createRoute({ getParentRoute: () => root, path, component });
const routes = [
  createRoute({
    getParentRoute: () => root,
    path: "/",
    beforeLoad: () => {
      throw redirect({ to: session.get()?.operator ? "/overview" : "/playground" });
    },
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/playground",
    component: Playground,
    validateSearch: (s: Record<string, unknown>): { agent?: string; conversation?: number } => {
      const agent = text(s["agent"]);
      return { ...(agent && { agent }), ...(typeof s["conversation"] === "number" && { conversation: s["conversation"] }) };
    },
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/tasks",
    component: Tasks,
    validateSearch: texts("status", "agent", "since", "until", "text", "cursor"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/tasks/$task",
    component: lazyRouteComponent(() => import("./task"), "Task"),
    validateSearch: texts("find", "view"),
  }),
  createRoute({ getParentRoute: () => root, path: "/agents", component: Agents, validateSearch: texts("view") }),
  at("/agents/$agent", Agent),
  at("/inbox", Inbox),
  createRoute({
    getParentRoute: () => root,
    path: "/config",
    component: lazyRouteComponent(() => import("./config"), "Config"),
    validateSearch: ({ revision }: Record<string, unknown>): { revision?: number | "saved" } => (typeof revision === "number" || revision === "saved" ? { revision } : {}),
  }),
  createRoute({ getParentRoute: () => root, path: "/documents", component: lazyRouteComponent(() => import("./documents"), "Stores") }),
  createRoute({
    getParentRoute: () => root,
    path: "/documents/$store",
    component: lazyRouteComponent(() => import("./documents"), "Store"),
    validateSearch: (s: Record<string, unknown>): { state?: string; prefix?: string; cursor?: string } => {
      const [state, prefix, cursor] = [text(s["state"]), text(s["prefix"]), text(s["cursor"])];
      return { ...(state && { state }), ...(prefix && { prefix }), ...(cursor && { cursor }) };
    },
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/triggers",
    component: lazyRouteComponent(() => import("./triggers"), "Triggers"),
    validateSearch: texts("starts"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/usage",
    component: lazyRouteComponent(() => import("./usage"), "Usage"),
    validateSearch: usageSearch,
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/overview",
    component: lazyRouteComponent(() => import("./overview"), "Overview"),
    validateSearch: overviewSearch,
  }),
  createRoute({ getParentRoute: () => root, path: "/system", component: lazyRouteComponent(() => import("./system"), "System") }),
  createRoute({ getParentRoute: () => root, path: "/apps", component: lazyRouteComponent(() => import("./apps"), "Apps"), validateSearch: texts("status", "cursor") }),
  createRoute({ getParentRoute: () => root, path: "/apps/new", component: lazyRouteComponent(() => import("./apps"), "NewApp") }),
  createRoute({ getParentRoute: () => root, path: "/apps/$app", component: lazyRouteComponent(() => import("./app"), "AppPage"), validateSearch: appSearch }),
  createRoute({
    getParentRoute: () => root,
    path: "/queue",
    component: lazyRouteComponent(() => import("./queue"), "Queue"),
    validateSearch: texts("app", "agent", "error", "cursor"),
  }),
  createRoute({ getParentRoute: () => root, path: "/money", component: lazyRouteComponent(() => import("./money"), "Money"), validateSearch: texts("status", "month", "cursor") }),
  createRoute({ getParentRoute: () => root, path: "/money/$app/$invoice", component: lazyRouteComponent(() => import("./invoice"), "InvoicePage") }),
  createRoute({
    getParentRoute: () => root,
    path: "/audit",
    component: lazyRouteComponent(() => import("./audit"), "Audit"),
    validateSearch: texts("app", "actor", "action", "since", "until", "cursor"),
  }),
] as const;

receiveSession();

const router = createRouter({ routeTree: root.addChildren(routes), basepath: "/console", defaultPreload: false });

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}

// A refusal is not tried again; a server that does not answer is, twice.
const cache = new QueryClient({
  defaultOptions: { queries: { staleTime: 1000, retry: (n, error) => n < 2 && !(error instanceof ApiError && error.status > 0 && error.status < 500) } },
});

resumeConversations();

// Mantine would write its variables and classes as inline styles, which the page's policy forbids: its style sheet has
// the default ones, and console.css what we change.
createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <MantineProvider defaultColorScheme="auto" withCssVariables={false} withGlobalClasses={false}>
      <QueryClientProvider client={cache}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
