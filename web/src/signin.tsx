import { Alert, Button, Checkbox, Paper, PasswordInput, Stack, Text, TextInput, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useLocation, useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { flushSync } from "react-dom";
import { ApiError, get } from "./api";
import { callerKey, readCaller } from "./caller";
import { continueConversations, dropAll } from "./conversations";
import { beginSignIn, redeem, takeAnswer, type Answer, type Provider } from "./oidc";
import { Problem } from "./parts";
import { isOperatorScreen } from "./screens";
import { isSamePerson, renewWith, session, signIn, type Session } from "./session";

// answer is what the provider has sent the browser back with. It is read before the router changes the address.
let answer = takeAnswer();

// readApps reads what only the operator may.
const readApps = (s: Session) => get("/admin/apps?page_size=1", undefined, { token: s.token, app: "" });

// SignIn asks for a credential. refused is the session whose credential the server no longer accepts.
export function SignIn({ refused }: { refused?: Session }) {
  const navigate = useNavigate();
  const cache = useQueryClient();
  const { pathname } = useLocation();
  const [token, setToken] = useState("");
  const [app, setApp] = useState("");
  const [keep, setKeep] = useState(false);
  // /health says whether the default app asks for a credential.
  const health = useQuery({ queryKey: ["health"], queryFn: ({ signal }) => get<{ auth?: { enabled: boolean; issuer?: string; client_id?: string; audience?: string } }>("/health", signal, null) });
  const open = health.isSuccess && !health.data.auth?.enabled;
  const attempt = useMutation({
    mutationFn: async ({ next }: { next: Session; kept: boolean }) => {
      // The admin secret is neither an API key nor a token, and only the operator's API takes it.
      if (next.token && !next.token.startsWith("stoa_") && next.token.split(".").length !== 3) {
        await readApps(next);
        return { token: next.token, app: "", operator: true };
      }
      try {
        cache.setQueryData(callerKey(next), await readCaller(next));
        return next;
      } catch (error) {
        // 403 is the answer also for a token of the operator's.
        if (!(error instanceof ApiError && error.status === 403 && next.token)) throw error;
      }
      const operator = await readApps(next).then(
        () => true,
        (error: unknown) => {
          if (error instanceof ApiError && error.status === 403) return false;
          throw error;
        },
      );
      return operator ? { token: next.token, app: "", operator } : next;
    },
    onSuccess: async (next, { kept }) => {
      // The address may be of a screen of the other point of view. It changes first, so that no such screen is shown.
      if (isOperatorScreen(pathname) !== !!next.operator) await navigate({ to: next.operator ? "/overview" : "/playground" });
      // Another person gets nothing of what this one has read and typed.
      if (refused && !isSamePerson(refused, next)) {
        // At once: the screens lose what was typed in them only when they go.
        flushSync(() => session.set(null));
        cache.removeQueries({ predicate: ({ queryKey }) => queryKey[0] !== "health" && queryKey[1] !== next });
        dropAll();
      }
      signIn(next, kept);
      if (refused) continueConversations();
    },
  });
  const auth = health.data?.auth;
  const provider = auth?.client_id && auth.issuer ? { issuer: auth.issuer, client_id: auth.client_id, ...(auth.audience && { audience: auth.audience }) } : null;
  const leave = useMutation({ mutationFn: (at: Provider) => beginSignIn(at, keep) });
  // The code that the provider sent back becomes a token.
  const { mutate: finish, ...finishing } = useMutation({
    mutationFn: async (a: Answer) => {
      const { token, renewal } = await redeem(a);
      await attempt.mutateAsync({ next: { token, app: "" }, kept: a.attempt.keep });
      renewWith(renewal);
    },
  });
  const [refusal] = useState(answer instanceof Error ? answer : null);
  useEffect(() => {
    // A code is good once.
    const found = answer;
    answer = null;
    if (found && !(found instanceof Error)) finish(found);
  }, [finish]);
  return (
    <main className="signin">
      <Paper withBorder p="xl" radius="md">
        <form
          onSubmit={(e) => {
            e.preventDefault();
            attempt.mutate({ next: { token: token.trim(), app: app.trim() }, kept: keep });
          }}
        >
          <Stack>
            <div>
              <Title order={1} size="h2">
                Stoa
              </Title>
              <Text c="dimmed" size="sm">
                Try agents, follow tasks, decide what waits.
              </Text>
            </div>
            {refused && (
              <Alert color="orange" variant="light" title="The credential is no longer accepted" role="alert">
                It has expired or was revoked. Sign in again: what you have typed is still there if you are the same person.
              </Alert>
            )}
            {open && (
              <>
                <Button loading={attempt.isPending} onClick={() => attempt.mutate({ next: { token: "", app: "" }, kept: keep })}>
                  Open the default app
                </Button>
                <Text c="dimmed" size="sm">
                  It needs no credential. For another app, sign in:
                </Text>
              </>
            )}
            {provider && (
              <>
                <Button loading={leave.isPending || finishing.isPending} onClick={() => leave.mutate(provider)}>
                  Sign in at {new URL(provider.issuer).host}
                </Button>
                <Text c="dimmed" size="sm">
                  Or with a credential:
                </Text>
              </>
            )}
            <PasswordInput
              label="API key, token or admin secret"
              description="A token from the operator: stoa app token APP --sub NAME"
              autoComplete="off"
              value={token}
              onChange={(e) => setToken(e.currentTarget.value)}
            />
            <TextInput
              label="App"
              description="Only where the address should name it; the credential knows its app"
              autoComplete="off"
              value={app}
              onChange={(e) => setApp(e.currentTarget.value)}
            />
            <Checkbox label="Keep it until this tab closes" checked={keep} onChange={(e) => setKeep(e.currentTarget.checked)} />
            <Button type="submit" variant={open || provider ? "default" : "filled"} loading={attempt.isPending} disabled={!token.trim() && !app.trim() && !open}>
              Sign in
            </Button>
            <Problem error={attempt.error ?? finishing.error ?? leave.error ?? refusal} />
            <Problem error={health.error} retry={() => void health.refetch()} />
          </Stack>
        </form>
      </Paper>
    </main>
  );
}
