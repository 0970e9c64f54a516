import { Button, Checkbox, Paper, PasswordInput, Stack, Text, TextInput, Title } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useLocation, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { ApiError, get, type TaskList } from "./api";
import { Problem } from "./parts";
import { isOperatorScreen } from "./screens";
import { signIn, type Session } from "./session";

export function SignIn() {
  const navigate = useNavigate();
  const { pathname } = useLocation();
  const [token, setToken] = useState("");
  const [app, setApp] = useState("");
  const [keep, setKeep] = useState(false);
  // /health says whether the default app asks for a credential.
  const health = useQuery({ queryKey: ["health"], queryFn: ({ signal }) => get<{ auth?: { enabled: boolean } }>("/health", signal, null) });
  const open = health.isSuccess && !health.data.auth?.enabled;
  const attempt = useMutation({
    mutationFn: async (next: Session) => {
      try {
        await get<TaskList>("/tasks?page_size=1", undefined, next);
        return next;
      } catch (error) {
        // 403 is the answer for the operator's credential, and for a role that sees no tasks.
        if (!(error instanceof ApiError && error.status === 403 && next.token)) throw error;
      }
      const operator = await get("/admin/apps?page_size=1", undefined, { token: next.token, app: "" }).then(
        () => true,
        (error: unknown) => {
          if (error instanceof ApiError && error.status === 403) return false;
          throw error;
        },
      );
      return operator ? { token: next.token, app: "", operator } : next;
    },
    onSuccess: async (next) => {
      // The address may be of a screen of the other point of view. It changes first, so that no such screen is shown.
      if (isOperatorScreen(pathname) !== !!next.operator) await navigate({ to: next.operator ? "/overview" : "/playground" });
      signIn(next, keep);
    },
  });
  return (
    <main className="signin">
      <Paper withBorder p="xl" radius="md">
        <form
          onSubmit={(e) => {
            e.preventDefault();
            attempt.mutate({ token: token.trim(), app: app.trim() });
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
            {open && (
              <>
                <Button loading={attempt.isPending} onClick={() => attempt.mutate({ token: "", app: "" })}>
                  Open the default app
                </Button>
                <Text c="dimmed" size="sm">
                  It needs no credential. For another app, sign in:
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
            <Button type="submit" variant={open ? "default" : "filled"} loading={attempt.isPending} disabled={!token.trim() && !app.trim() && !open}>
              Sign in
            </Button>
            <Problem error={attempt.error} />
            <Problem error={health.error} retry={() => void health.refetch()} />
          </Stack>
        </form>
      </Paper>
    </main>
  );
}
