import { Alert, Button, Group, Stack, Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { change, type Schema } from "./api";
import { openTab } from "./handover";
import { Problem, Snippet } from "./parts";

// Once shows a credential that no later answer has.
export function Once({ what, value, onClose }: { what: string; value: string; onClose: () => void }) {
  return (
    <Alert color="yellow" variant="light" title={`This ${what} is shown this once`} role="status">
      <Stack gap="xs" align="flex-start">
        <Snippet text={value} />
        <Button size="xs" variant="default" onClick={onClose}>
          I have kept it
        </Button>
      </Stack>
    </Alert>
  );
}

// trialUser is the subject of the tokens with which an operator tries an app.
const trialUser = "operator-trial";

// TryIt creates a token that may call the app's agents and see its own tasks, and opens the playground with it. The token
// ends in an hour.
export function TryIt({ path }: { path: string }) {
  const [token, setToken] = useState("");
  const [blocked, setBlocked] = useState(false);
  const create = useMutation({
    mutationFn: () => change<Schema["Token"]>("POST", `${path}/tokens`, { json: { sub: trialUser, roles: ["caller"], ttl: "1h" } }),
    onSuccess: (made) => setToken(made.access_token),
  });
  const open = (made: Promise<string>) => setBlocked(!openTab(made.then((t) => ({ token: t, app: "" }))));
  return (
    <Stack gap="xs">
      <Group gap="xs">
        {token === "" ? (
          <Button loading={create.isPending} onClick={() => open(create.mutateAsync().then((made) => made.access_token))}>
            Try it
          </Button>
        ) : (
          <Button variant="default" onClick={() => open(Promise.resolve(token))}>
            Open the playground again
          </Button>
        )}
        <Text size="sm" c="dimmed">
          Opens the playground in another tab as the caller {trialUser}, with a token that ends in an hour.
        </Text>
      </Group>
      {blocked && token && (
        <Text role="alert" size="sm">
          The browser has blocked the tab. Allow it to open one, then open the playground again.
        </Text>
      )}
      {token && <Once what="token" value={token} onClose={() => setToken("")} />}
      <Problem error={create.error} />
    </Stack>
  );
}
