import { ActionIcon, Badge, Button, Text, useComputedColorScheme, useMantineColorScheme } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { Link, Outlet, useLocation, useNavigate } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useRef, useState } from "react";
import { useCaller, type Caller } from "./caller";
import { dropAll } from "./conversations";
import { useInbox } from "./inbox";
import { homeOf, screensOf } from "./screens";
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
  const caller = useCaller();
  // The console begins with the playground, which not every credential may use.
  const navigate = useNavigate();
  const { pathname } = useLocation();
  const screens = screensOf(who, caller.data);
  const shown = gone ? undefined : screens.find(({ to }) => `${pathname}/`.startsWith(`${to}/`))?.name;
  useEffect(() => {
    document.title = `${count > 0 ? `(${count}) ` : ""}${shown ? `${shown} · ` : ""}Stoa`;
    return () => {
      document.title = "Stoa";
    };
  }, [count, shown]);
  const home = caller.data && homeOf(caller.data);
  useEffect(() => {
    if (pathname === "/playground" && home && home !== pathname) void navigate({ to: home, replace: true });
  }, [pathname, home, navigate]);
  const content = useRef<HTMLElement>(null);
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
      <a
        className="skip"
        href="#content"
        onClick={(e) => {
          // The address keeps what it says of the screen.
          e.preventDefault();
          content.current?.focus();
          content.current?.scrollIntoView();
        }}
      >
        Skip to content
      </a>
      <header>
        <strong className="brand">Stoa</strong>
        <nav aria-label="Console">
          {(who?.operator || !caller.isPending) && screens.map((screen) => (
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
            {who?.operator ? "operator" : caller.data ? <Who caller={caller.data} /> : who?.app}
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
      <main id="content" tabIndex={-1} ref={content}>
        <Outlet />
      </main>
    </div>
  );
}

// Who shows the app and the user of the credential. Two issuers may have the same user.
function Who({ caller }: { caller: Caller }) {
  return (
    <span title={caller.issuer && `The user ${caller.user} of ${caller.issuer}`}>
      {caller.app}
      {caller.anonymous ? ", without a credential" : ` · ${caller.user}`}
    </span>
  );
}

// Scheme changes the colours. Mantine would hold transitions back meanwhile by a style in the page, which the policy forbids.
function Scheme() {
  const { setColorScheme } = useMantineColorScheme({ keepTransitions: true });
  const dark = useComputedColorScheme("light") === "dark";
  return (
    <ActionIcon variant="subtle" color="gray" aria-label={dark ? "Light colours" : "Dark colours"} onClick={() => setColorScheme(dark ? "light" : "dark")}>
      {dark ? "☀" : "☾"}
    </ActionIcon>
  );
}
