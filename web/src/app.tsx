import { Alert, Button, Code, Group, Skeleton, Stack, Table, Tabs, Text, TextInput, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { change, get, getText, type Schema } from "./api";
import { AppStatus } from "./apps";
import { Settings } from "./appsettings";
import { Edit, Secrets, useConfigText, type Source } from "./config";
import { Once, TryIt } from "./credentials";
import { grants, splitGrant } from "./grants";
import { limitsText } from "./limits";
import { hiddenHead, Rows } from "./lists";
import { Confirm, Empty, Problem, Time } from "./parts";
import { appTabs, type Group as By } from "./search";
import { session } from "./session";
import { Budgets, RangePicker, UsageView } from "./usage";

// AppPage is an app as its operator sees it.
export function AppPage() {
  const { app: name } = useParams({ from: "/apps/$app" });
  const { tab = "facts", revision, days = 30, by = "agent" } = useSearch({ from: "/apps/$app" });
  const who = session.use();
  const navigate = useNavigate();
  const path = `/admin/apps/${encodeURIComponent(name)}`;
  const app = useQuery({ queryKey: ["app", who, name], queryFn: ({ signal }) => get<Schema["App"]>(path, signal) });
  const go = (search: object) => void navigate({ to: "/apps/$app", params: { app: name }, search: { tab, ...search } });
  if (app.isPending) return <Skeleton height={400} />;
  if (!app.data) return <Problem error={app.error} retry={() => void app.refetch()} />;
  return (
    <Stack key={name}>
      <Group gap="xs">
        <Title order={2}>{app.data.display_name || name}</Title>
        <AppStatus status={app.data.status} />
      </Group>
      <Tabs value={tab} onChange={(next) => go({ tab: next ?? "facts" })} keepMounted={false}>
        <Tabs.List aria-label={`Parts of ${name}`}>
          {appTabs.map((t) => (
            <Tabs.Tab key={t} value={t}>
              {t[0]!.toUpperCase() + t.slice(1)}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value="facts" pt="md">
          <Facts app={app.data} path={path} />
        </Tabs.Panel>
        <Tabs.Panel value="configuration" pt="md">
          {name === "default" ? (
            <Text>The configuration of the default app is the server's file.</Text>
          ) : (
            <Configuration name={name} path={path} compared={revision} onCompare={(next) => go(next === undefined ? {} : { revision: next })} />
          )}
        </Tabs.Panel>
        <Tabs.Panel value="access" pt="md">
          <Access path={path} />
        </Tabs.Panel>
        <Tabs.Panel value="usage" pt="md">
          <Stack>
            <RangePicker days={days} by={by} onChange={(next) => go({ days, by, ...next })} />
            <UsageOf path={path} days={days} by={by} />
            <BudgetsOf path={path} app={app.data.name} />
            <CreditsOf path={path} app={app.data.name} />
          </Stack>
        </Tabs.Panel>
        <Tabs.Panel value="settings" pt="md">
          <Settings app={app.data} path={path} />
        </Tabs.Panel>
      </Tabs>
    </Stack>
  );
}

function useRenew() {
  const cache = useQueryClient();
  return () => {
    void cache.invalidateQueries({ queryKey: ["app"] });
    void cache.invalidateQueries({ queryKey: ["apps"] });
  };
}

function Facts({ app, path }: { app: Schema["App"]; path: string }) {
  const renew = useRenew();
  const [reason, setReason] = useState("");
  const options = () => ({ ...(reason && { json: { reason } }), ...(app.etag && { ifMatch: app.etag }) });
  const suspend = useMutation({ mutationFn: () => change("POST", `${path}:suspend`, options()), onSettled: renew });
  const resume = useMutation({ mutationFn: () => change("POST", `${path}:resume`, options()), onSettled: renew });
  return (
    <Stack>
      {app.status === "active" && <TryIt path={path} />}
      {app.status === "suspended" && <Suspension app={app} />}
      <dl className="facts">
        <dt>Name</dt>
        <dd>{app.name}</dd>
        <dt>Id</dt>
        <dd className="mono">{app.id}</dd>
        <dt>Revision</dt>
        <dd>{app.revision}</dd>
        <dt>Plan</dt>
        <dd>{app.plan || "none"}</dd>
        <dt>Labels</dt>
        <dd>{Object.entries(app.labels).map(([k, v]) => `${k}=${v}`).join(", ") || "none"}</dd>
        <dt>Limits</dt>
        <dd>{limitsText(app.limits)}</dd>
        <dt>May also</dt>
        <dd>
          {app.grants.length === 0
            ? "nothing: it has no grants"
            : app.grants.map((g, i) => {
                const [name, folders] = splitGrant(g);
                return (
                  <div key={i}>
                    <Code>{name}</Code> {grants.find((known) => known.name === name)?.allows}
                    {folders.length > 0 && `: ${folders.join(", ")}`}
                  </div>
                );
              })}
        </dd>
        {app.created_at && (
          <>
            <dt>Created</dt>
            <dd>
              <Time at={app.created_at} />
            </dd>
          </>
        )}
        <dt>Last change</dt>
        <dd>{app.updated_at && <Time at={app.updated_at} />}</dd>
        {!!app.awaits_restart?.length && (
          <>
            <dt>Awaits a restart</dt>
            <dd>{app.awaits_restart.join(", ")}</dd>
          </>
        )}
      </dl>
      <Group gap="xs">
        <Link to="/audit" search={{ app: app.name }}>
          Audit trail of this app
        </Link>
        <Link to="/queue" search={{ app: app.name }}>
          Its dead letters
        </Link>
      </Group>
      {app.status === "active" && app.name !== "default" && (
        <Group gap="xs" align="flex-end">
          <TextInput label="Reason" placeholder="It is in the audit trail" value={reason} onChange={(e) => setReason(e.currentTarget.value)} />
          <Confirm label="Suspend" loading={suspend.isPending} onConfirm={() => suspend.mutate()}>
            Its calls are answered 403, and its runs wait.
          </Confirm>
        </Group>
      )}
      {app.status === "suspended" && (
        <Group>
          <Button loading={resume.isPending} onClick={() => resume.mutate()}>
            Resume
          </Button>
        </Group>
      )}
      <Problem error={suspend.error ?? resume.error} />
    </Stack>
  );
}

// Suspension says when and why an app was suspended, as its audit trail has it.
function Suspension({ app }: { app: Schema["App"] }) {
  const who = session.use();
  const query = new URLSearchParams({ app: app.name, action: "app.suspend", page_size: "1" });
  const entries = useQuery({ queryKey: ["audit", who, "suspended", app.name, app.etag], queryFn: ({ signal }) => get<Schema["AuditPage"]>(`/admin/audit?${query}`, signal) });
  const last = entries.data?.entries[0];
  const reason = last?.detail?.["reason"];
  return (
    <Alert color="orange" variant="light" title="The app is suspended" role="status">
      <Text size="sm">Its calls are answered 403, and its runs wait.</Text>
      {last && (
        <Text size="sm">
          By {last.actor} {last.at && <Time at={last.at} />}: {typeof reason === "string" ? reason : "no reason was given"}
        </Text>
      )}
    </Alert>
  );
}

function Configuration({ name, path, compared, onCompare }: { name: string; path: string; compared: number | "saved" | undefined; onCompare: (revision?: number | "saved") => void }) {
  const source = useMemo<Source>(
    () => ({
      id: `app ${name}`,
      read: (signal) => getText(path, "application/yaml", signal),
      check: async (config, signal) => (await change<Schema["App"]>("PATCH", `${path}?dry_run=true`, { json: { config }, signal })).warnings ?? [],
      save: async (config, ifMatch) => `Saved as revision ${(await change<Schema["App"]>("PATCH", path, { json: { config }, ifMatch })).revision}.`,
      revisions: `${path}/revisions`,
    }),
    [name, path],
  );
  const read = useConfigText(source);
  if (!read.data) return read.error ? <Problem error={read.error} retry={() => void read.refetch()} /> : <Skeleton height={400} />;
  return (
    <Stack>
      <Edit source={source} read={read.data} reload={async () => (await read.refetch()).data} compared={compared} onCompare={onCompare} />
      <Secrets path={`${path}/secrets`} />
    </Stack>
  );
}

const listOf = (text: string) => text.split(/[\s,]+/).filter(Boolean);

function Access({ path }: { path: string }) {
  const who = session.use();
  const cache = useQueryClient();
  const keys = useQuery({ queryKey: ["keys", who, path], queryFn: ({ signal }) => get<Schema["KeyList"]>(`${path}/keys`, signal) });
  const roles = useQuery({ queryKey: ["roles", who, path], queryFn: ({ signal }) => get<Schema["RoleList"]>(`${path}/roles`, signal) });
  const renew = () => {
    void cache.invalidateQueries({ queryKey: ["keys"] });
    // A change of its keys gives the app another ETag.
    void cache.invalidateQueries({ queryKey: ["app"] });
  };
  const [shown, setShown] = useState<{ what: string; value: string } | null>(null);
  const [token, setToken] = useState({ sub: "", roles: "", ttl: "" });
  const [key, setKey] = useState({ name: "", roles: "" });
  const [revoked, setRevoked] = useState("");
  const newToken = useMutation({
    mutationFn: () =>
      change<Schema["Token"]>("POST", `${path}/tokens`, { json: { sub: token.sub, ...(token.roles && { roles: listOf(token.roles) }), ...(token.ttl && { ttl: token.ttl }) } }),
    onSuccess: (made) => setShown({ what: "token", value: made.access_token }),
  });
  const revoke = useMutation({
    mutationFn: (sub: string) => change("POST", `${path}/tokens:revoke`, { json: sub ? { sub } : {} }),
    onSuccess: (_, sub) => setRevoked(sub ? `The tokens of ${sub} are refused from now on.` : "Every token of the app is refused from now on."),
  });
  const newKey = useMutation({
    mutationFn: () => change<Schema["NewKey"]>("POST", `${path}/keys`, { json: { name: key.name, ...(key.roles && { roles: listOf(key.roles) }) } }),
    onSuccess: (made) => {
      setShown({ what: "key", value: made.key });
      setKey({ name: "", roles: "" });
      renew();
    },
  });
  const rotate = useMutation({
    mutationFn: (id: string) => change<Schema["NewKey"]>("POST", `${path}/keys/${encodeURIComponent(id)}:rotate`, { json: { overlap: "24h" } }),
    onSuccess: (made) => {
      setShown({ what: "key", value: made.key });
      renew();
    },
  });
  const remove = useMutation({ mutationFn: (id: string) => change("DELETE", `${path}/keys/${encodeURIComponent(id)}`), onSettled: renew });
  return (
    <Stack>
      {shown && <Once {...shown} onClose={() => setShown(null)} />}
      <Title order={3} size="h4">
        Tokens
      </Title>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          newToken.mutate();
        }}
      >
        <Group gap="xs" align="flex-end">
          <TextInput label="Subject" placeholder="ana" value={token.sub} onChange={(e) => setToken({ ...token, sub: e.currentTarget.value })} />
          <TextInput label="Roles of the token" placeholder="caller" value={token.roles} onChange={(e) => setToken({ ...token, roles: e.currentTarget.value })} />
          <TextInput label="Valid for" placeholder="1h, at most 30d" value={token.ttl} onChange={(e) => setToken({ ...token, ttl: e.currentTarget.value })} />
          <Button type="submit" variant="default" disabled={!token.sub} loading={newToken.isPending}>
            Create a token
          </Button>
          <Confirm label={token.sub ? `Revoke the tokens of ${token.sub}` : "Revoke all tokens"} loading={revoke.isPending} onConfirm={() => revoke.mutate(token.sub)}>
            Every such token that was issued until now is refused.
          </Confirm>
        </Group>
      </form>
      {revoked && <Text role="status">{revoked}</Text>}
      <Problem error={newToken.error ?? revoke.error} />
      <Title order={3} size="h4">
        API keys
      </Title>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          newKey.mutate();
        }}
      >
        <Group gap="xs" align="flex-end">
          <TextInput label="Name of the key" placeholder="backend" value={key.name} onChange={(e) => setKey({ ...key, name: e.currentTarget.value })} />
          <TextInput label="Roles of the key" placeholder="caller" value={key.roles} onChange={(e) => setKey({ ...key, roles: e.currentTarget.value })} />
          <Button type="submit" variant="default" disabled={!key.name} loading={newKey.isPending}>
            Create a key
          </Button>
        </Group>
      </form>
      <Problem error={newKey.error ?? rotate.error ?? remove.error ?? keys.error} />
      {keys.data?.keys.length === 0 && <Text c="dimmed">There are no keys.</Text>}
      {!!keys.data?.keys.length && (
        <Rows label="API keys" head={["Key", "Roles", "Created", "Last used", hiddenHead("Change")]}>
          {keys.data.keys.map((k) => (
            <Table.Tr key={k.id}>
              <Table.Td>
                {k.name}
                <Text size="xs" c="dimmed" className="mono">
                  {k.prefix}
                </Text>
              </Table.Td>
              <Table.Td>{k.roles.join(", ")}</Table.Td>
              <Table.Td>{k.created_at && <Time at={k.created_at} />}</Table.Td>
              <Table.Td>{k.last_used_at ? <Time at={k.last_used_at} /> : "never"}</Table.Td>
              <Table.Td>
                <Group gap="xs">
                  <Confirm label="Rotate" about={k.name} onConfirm={() => rotate.mutate(k.id)}>
                    The present key is good for 24 more hours.
                  </Confirm>
                  <Confirm label="Delete" about={k.name} onConfirm={() => remove.mutate(k.id)}>
                    Calls with it are refused at once.
                  </Confirm>
                </Group>
              </Table.Td>
            </Table.Tr>
          ))}
        </Rows>
      )}
      <Title order={3} size="h4">
        Roles
      </Title>
      <Problem error={roles.error} />
      {roles.data && (
        <Rows label="Roles" head={["Role", "Scopes", "Description"]}>
          {roles.data.roles.map((r) => (
            <Table.Tr key={r.name}>
              <Table.Td>
                {r.name}
                {r.built_in && ", built in"}
              </Table.Td>
              <Table.Td>{r.scopes.join(", ")}</Table.Td>
              <Table.Td>{r.description}</Table.Td>
            </Table.Tr>
          ))}
        </Rows>
      )}
    </Stack>
  );
}

// UsageOf shows an app's usage, with the names of its keys.
function UsageOf({ path, days, by }: { path: string; days: number; by: By }) {
  const who = session.use();
  const keys = useQuery({ queryKey: ["keys", who, path], queryFn: ({ signal }) => get<Schema["KeyList"]>(`${path}/keys`, signal), enabled: by === "key" });
  return <UsageView path={`${path}/usage`} days={days} by={by} keyNames={Object.fromEntries(keys.data?.keys.map((k) => [k.id, k.name]) ?? [])} />;
}

// CreditsOf shows what has been granted to the app, and how much of it is left.
function CreditsOf({ path, app }: { path: string; app: string }) {
  const who = session.use();
  const credits = useQuery({ queryKey: ["credits", who, path], queryFn: ({ signal }) => get<Schema["CreditList"]>(`${path}/credits`, signal) });
  return (
    <>
      <Title order={3} size="h4">
        Credits
      </Title>
      <Problem error={credits.error} retry={() => void credits.refetch()} />
      {credits.data?.credits.length === 0 && (
        <Empty title="There are no credits" command={`stoa billing credit grant ${app} 10.00 --note trial`}>
          A credit pays for usage before anything is due.
        </Empty>
      )}
      {!!credits.data?.credits.length && (
        <Rows label="Credits" head={["Granted", "Amount", "Left", "Status", "Expires", "Note"]}>
          {credits.data.credits.map((c) => (
            <Table.Tr key={c.id}>
              <Table.Td>{c.created_at && <Time at={c.created_at} />}</Table.Td>
              <Table.Td>{`${c.amount_decimal} ${c.currency}`}</Table.Td>
              <Table.Td>{c.remaining_decimal}</Table.Td>
              <Table.Td>{c.status}</Table.Td>
              <Table.Td>{c.expires_at ? <Time at={c.expires_at} /> : "never"}</Table.Td>
              <Table.Td>{c.note}</Table.Td>
            </Table.Tr>
          ))}
        </Rows>
      )}
    </>
  );
}

function BudgetsOf({ path, app }: { path: string; app: string }) {
  const who = session.use();
  const budgets = useQuery({ queryKey: ["budgets", who, path], queryFn: ({ signal }) => get<Schema["BudgetList"]>(`${path}/budgets`, signal) });
  return (
    <Stack gap="xs">
      <Title order={3} size="h4">
        Budgets
      </Title>
      <Problem error={budgets.error} />
      {budgets.data && <Budgets budgets={budgets.data.budgets} command={`stoa billing budget add budget.json --app ${app}`} />}
    </Stack>
  );
}
