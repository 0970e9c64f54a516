import { ActionIcon, Badge, Button, Text, useComputedColorScheme, useMantineColorScheme } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { Link, Outlet } from "@tanstack/react-router";
import { useEffect } from "react";
import { dropAll } from "./conversations";
import { useInbox } from "./inbox";
import { session, signOut } from "./session";
import { SignIn } from "./signin";

// Root shows the sign-in until there is a session.
export function Root() {
  const who = session.use();
  const cache = useQueryClient();
  // What one session has read does not stay in memory for the next.
  useEffect(() => {
    if (who) return;
    cache.removeQueries({ predicate: (query) => query.queryKey[0] !== "health" });
    dropAll();
  }, [who, cache]);
  return who ? <Layout /> : <SignIn />;
}

function Layout() {
  const who = session.use();
  const inbox = useInbox();
  const count = inbox.data?.waiting.length ?? 0;
  useEffect(() => {
    document.title = count > 0 ? `(${count}) Stoa` : "Stoa";
    return () => {
      document.title = "Stoa";
    };
  }, [count]);
  return (
    <div className="layout">
      <header>
        <strong className="brand">Stoa</strong>
        <nav aria-label="Console">
          {who?.operator ? (
            <>
              <Link to="/overview">Overview</Link>
              <Link to="/apps">Apps</Link>
              <Link to="/queue">Queue</Link>
              <Link to="/money">Money</Link>
              <Link to="/audit">Audit</Link>
              <Link to="/system">System</Link>
            </>
          ) : (
            <>
              <Link to="/playground">Playground</Link>
              <Link to="/agents">Agents</Link>
              <Link to="/tasks">Tasks</Link>
              <Link to="/inbox">
                Inbox
                {count > 0 && (
                  <Badge size="sm" color="orange" autoContrast ml={6}>
                    {count}
                  </Badge>
                )}
              </Link>
              <Link to="/config">Configuration</Link>
              <Link to="/documents">Documents</Link>
              <Link to="/triggers">Triggers</Link>
              <Link to="/usage">Usage</Link>
            </>
          )}
        </nav>
        <div className="who">
          <Text size="sm" c="dimmed" className="app">
            {who?.operator ? "operator" : who?.app || (who?.token ? "the credential's app" : "default app")}
          </Text>
          <Scheme />
          <Button size="compact-sm" variant="subtle" onClick={signOut}>
            {who?.token ? "Sign out" : "Sign in"}
          </Button>
        </div>
      </header>
      <main>
        <Outlet />
      </main>
    </div>
  );
}

function Scheme() {
  const { setColorScheme } = useMantineColorScheme();
  const dark = useComputedColorScheme("light") === "dark";
  return (
    <ActionIcon variant="subtle" color="gray" aria-label={dark ? "Light colours" : "Dark colours"} onClick={() => setColorScheme(dark ? "light" : "dark")}>
      {dark ? "☀" : "☾"}
    </ActionIcon>
  );
}
