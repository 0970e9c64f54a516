import { ActionIcon, Badge, Button, Text, useComputedColorScheme, useMantineColorScheme } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { Link, Outlet } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useState } from "react";
import { dropAll } from "./conversations";
import { useInbox } from "./inbox";
import { screensOf } from "./screens";
import { refused, session, signOut } from "./session";
import { SignIn } from "./signin";

const Palette = lazy(() => import("./palette"));

// Root shows the sign-in until there is a session, and again when the server refuses its credential.
export function Root() {
  const who = session.use();
  const gone = refused.use();
  const cache = useQueryClient();
  // What one session has read does not stay in memory for the next.
  useEffect(() => {
    if (who) return;
    cache.removeQueries({ predicate: (query) => query.queryKey[0] !== "health" });
    dropAll();
  }, [who, cache]);
  if (!who) return <SignIn />;
  return (
    <>
      {gone && <SignIn refused={who} />}
      <div hidden={gone}>
        <Layout />
      </div>
    </>
  );
}

function Layout() {
  const who = session.use();
  const inbox = useInbox();
  const gone = refused.use();
  const count = gone ? 0 : (inbox.data?.waiting.length ?? 0);
  useEffect(() => {
    document.title = count > 0 ? `(${count}) Stoa` : "Stoa";
    return () => {
      document.title = "Stoa";
    };
  }, [count]);
  const [going, setGoing] = useState(false);
  useEffect(() => {
    const listen = (e: KeyboardEvent) => {
      if (e.key.toLowerCase() !== "k" || !(e.ctrlKey || e.metaKey) || e.shiftKey || e.altKey) return;
      e.preventDefault();
      setGoing(true);
    };
    // Before the editor, which has a use for the keys.
    addEventListener("keydown", listen, true);
    return () => removeEventListener("keydown", listen, true);
  }, []);
  return (
    <div className="layout">
      {going && (
        <Suspense>
          <Palette onClose={() => setGoing(false)} />
        </Suspense>
      )}
      <header>
        <strong className="brand">Stoa</strong>
        <nav aria-label="Console">
          {screensOf(who).map((screen) => (
            <Link key={screen.to} to={screen.to}>
              {screen.name}
              {screen.to === "/inbox" && count > 0 && (
                <Badge size="sm" color="orange" autoContrast ml={6}>
                  {count}
                </Badge>
              )}
            </Link>
          ))}
        </nav>
        <div className="who">
          <Text size="sm" c="dimmed" className="app">
            {who?.operator ? "operator" : who?.app || (who?.token ? "" : "default app")}
          </Text>
          <Button size="compact-sm" variant="default" className="palette-button" aria-label="Go to, Ctrl K" onClick={() => setGoing(true)}>
            Ctrl K
          </Button>
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
