import { Button, Checkbox, Group, NativeSelect, Paper, Stack, Text, Textarea, TextInput, Title } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { ApiError, change, get, type Schema } from "./api";
import { grants, mostFolders, splitGrant } from "./grants";
import { mostRate, mostRates, numbers, perWindow, ratePer, rateTypes, rateWindows, type Rate } from "./limits";
import { Problem } from "./parts";
import { count } from "./usage";

type App = Schema["App"];

// Draft is what the form holds. Numbers are texts, so that a field can be empty while it is edited.
interface Draft {
  display_name: string;
  plan: string;
  labels: { name: string; value: string }[];
  limits: Record<(typeof numbers)[number]["name"], string>;
  rate: (Omit<Rate, "limit"> & { limit: string })[];
  // grants are folders, one a line, by the name of the grant.
  grants: Record<string, string>;
  // json are limits and grants as JSON, which are edited in the place of the form; null = the form is.
  json: { limits: string; grants: string } | null;
}

const pretty = (value: unknown) => JSON.stringify(value, null, 2);
const isEqual = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);

function draftOf(app: Pick<App, "display_name" | "plan" | "labels" | "limits" | "grants">): Draft {
  const { weight, max_concurrent_tasks, queue_depth, rate } = app.limits;
  return {
    display_name: app.display_name,
    plan: app.plan,
    labels: Object.entries(app.labels).map(([name, value]) => ({ name, value })),
    limits: { weight: String(weight), max_concurrent_tasks: String(max_concurrent_tasks), queue_depth: String(queue_depth) },
    rate: rate.map((r) => ({ ...r, limit: String(r.limit) })),
    grants: Object.fromEntries(app.grants.map((g) => splitGrant(g)).map(([name, folders]) => [name, folders.join("\n")])),
    json: null,
  };
}

const lines = (text: string) => text.split("\n").map((line) => line.trim()).filter(Boolean);

// limitsOf returns the limits of the form. An empty number is 0, which stands for that of the plan, or the default.
const limitsOf = (draft: Draft): App["limits"] => ({
  weight: Number(draft.limits.weight),
  max_concurrent_tasks: Number(draft.limits.max_concurrent_tasks),
  queue_depth: Number(draft.limits.queue_depth),
  rate: draft.rate.map(({ agent, ...r }) => ({ ...r, ...(agent && r.per === "agent" && { agent }), limit: Number(r.limit) })),
});

const grantsOf = (draft: Draft) =>
  Object.entries(draft.grants).map(([name, folders]) => (folders.trim() || grants.find((g) => g.name === name)?.folders ? { [name]: lines(folders) } : name)) as Schema["Grants"];

// parse reads a text of the form.
function parse(name: string, text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new Error(`${name} is not valid JSON: ${error instanceof Error ? error.message : ""}`);
  }
}

// patchOf returns what the draft changes of the app. Limits that it leaves as they are stay out: they may be those of the plan.
function patchOf(draft: Draft, app: App): Schema["AppPatch"] {
  const limits = draft.json ? parse("limits", draft.json.limits) : limitsOf(draft);
  if (!limits || typeof limits !== "object" || Array.isArray(limits)) throw new Error("limits must be an object");
  const changed = Object.entries(limits).filter(([name, value]) => !isEqual(value, app.limits[name as keyof App["limits"]]));
  const twice = draft.labels.find(({ name }, i) => draft.labels.findIndex((l) => l.name === name) < i);
  if (twice) throw new Error(`labels have ${twice.name} twice`);
  const labels: Record<string, string | null> = Object.fromEntries(draft.labels.map(({ name, value }) => [name, value]));
  // In a patch a label is removed by null.
  for (const name of Object.keys(app.labels)) labels[name] ??= null;
  return {
    display_name: draft.display_name,
    plan: draft.plan || null,
    labels,
    limits: Object.fromEntries(changed),
    grants: (draft.json ? parse("grants", draft.json.grants) : grantsOf(draft)) as Schema["Grants"],
  };
}

// rebase returns the draft with the present value of each field that it does not change.
function rebase(draft: Draft, before: App, now: App): Draft {
  const [old, next] = [draftOf(before), draftOf(now)];
  const pick = <T,>(mine: T, then: T, present: T) => (isEqual(mine, then) ? present : mine);
  const limits = { ...draft.limits };
  for (const { name } of numbers) limits[name] = pick(draft.limits[name], old.limits[name], next.limits[name]);
  return {
    display_name: pick(draft.display_name, old.display_name, next.display_name),
    plan: pick(draft.plan, old.plan, next.plan),
    labels: pick(draft.labels, old.labels, next.labels),
    limits,
    rate: pick(draft.rate, old.rate, next.rate),
    grants: pick(draft.grants, old.grants, next.grants),
    json: draft.json && {
      limits: pick(draft.json.limits, pretty(limitsOf(old)), pretty(limitsOf(next))),
      grants: pick(draft.json.grants, pretty(grantsOf(old)), pretty(grantsOf(next))),
    },
  };
}

// useSettings holds what was typed, and the app that it began from: another's change in between is refused, not overwritten.
function useSettings(app: App, path: string) {
  const cache = useQueryClient();
  const [held, hold] = useState<{ base: App; draft: Draft } | null>(null);
  const [note, setNote] = useState("");
  const { base, draft } = held ?? { base: app, draft: draftOf(app) };
  const renew = () => {
    void cache.invalidateQueries({ queryKey: ["app"] });
    void cache.invalidateQueries({ queryKey: ["apps"] });
  };
  const save = useMutation({
    mutationFn: async () => change<App>("PATCH", path, { json: patchOf(draft, base), ...(base.etag && { ifMatch: base.etag }) }),
    onMutate: () => setNote(""),
    onSuccess: (saved) => {
      // It goes on from what was saved, in the same view.
      const next = draftOf(saved);
      hold({ base: saved, draft: draft.json ? asJson(next) : next });
      setNote("Saved.");
      renew();
    },
  });
  const takeOver = useMutation({
    mutationFn: () => get<App>(path),
    onSuccess: (now) => {
      hold({ base: now, draft: rebase(draft, base, now) });
      save.reset();
      renew();
    },
  });
  const set = (next: Partial<Draft>) => {
    setNote("");
    hold({ base, draft: { ...draft, ...next } });
  };
  return { base, draft, set, note, save, takeOver, renew };
}

const asJson = (draft: Draft): Draft => ({ ...draft, json: { limits: pretty(limitsOf(draft)), grants: pretty(grantsOf(draft)) } });

// asForm returns the draft as the form shows it. What the form has no field for is an error: it would be lost.
function asForm(draft: Draft, base: App): Draft {
  if (!draft.json) return draft;
  const limits = { ...limitsOf(draft), ...(parse("limits", draft.json.limits) as App["limits"]) };
  const next = draftOf({ ...base, limits, grants: parse("grants", draft.json.grants) as Schema["Grants"] });
  const known = ["rate", ...numbers.map((n) => n.name)];
  const odd = Object.keys(limits).find((name) => !known.includes(name)) ?? Object.keys(next.grants).find((name) => !grants.some((g) => g.name === name));
  if (odd !== undefined) throw new Error(`The form has no field for ${odd}: correct it, or save it as JSON`);
  return { ...draft, limits: next.limits, rate: next.rate, grants: next.grants, json: null };
}

// Settings are what the operator alone decides about an app: its limits, its grants, its plan and its labels.
export function Settings({ app, path }: { app: App; path: string }) {
  const settings = useSettings(app, path);
  const { base, draft, set, note, save, takeOver } = settings;
  const [wrong, setWrong] = useState<unknown>(null);
  if (app.name === "default") return <Text>The default app is that of the server's file, which alone changes it.</Text>;
  const turn = () => {
    try {
      set(draft.json ? asForm(draft, base) : asJson(draft));
      setWrong(null);
    } catch (error) {
      setWrong(error);
    }
  };
  return (
    <Stack>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          save.mutate();
        }}
      >
        <Stack gap="md">
          <Group gap="xs">
            <TextInput label="Display name" value={draft.display_name} onChange={(e) => set({ display_name: e.currentTarget.value })} />
            <TextInput label="Plan" placeholder="none" value={draft.plan} onChange={(e) => set({ plan: e.currentTarget.value })} />
          </Group>
          {draft.json ? (
            <>
              <Json label="Limits" description="weight, max_concurrent_tasks, queue_depth, rate: [{per, agent, type, window, limit}]; 0 = that of the plan, or the default" value={draft.json.limits} onChange={(limits) => set({ json: { ...draft.json!, limits } })} />
              <Json label="Grants" description='Names, or objects with the folders of one: ["stdio", {"filesystem": ["/srv/acme"]}]' value={draft.json.grants} onChange={(text) => set({ json: { ...draft.json!, grants: text } })} />
            </>
          ) : (
            <>
              <LimitFields draft={draft} set={set} />
              <GrantFields draft={draft} set={set} />
            </>
          )}
          <Group>
            <Button size="xs" variant="default" onClick={turn}>
              {draft.json ? "As a form" : "As JSON"}
            </Button>
            <Text size="sm" c="dimmed">
              Limits and grants
            </Text>
          </Group>
          <LabelFields draft={draft} set={set} />
          <Group>
            <Button type="submit" loading={save.isPending}>
              Save the settings
            </Button>
            {note && <Text role="status">{note}</Text>}
          </Group>
          {save.error instanceof ApiError && save.error.status === 412 ? (
            <Paper withBorder p="sm" role="alert">
              <Stack gap="xs" align="flex-start">
                <Text fw={600}>Somebody has changed the app since you began.</Text>
                <Text size="sm">Nothing is saved, and what you have typed is kept. Fields that you have not changed get their present values.</Text>
                <Button size="xs" loading={takeOver.isPending} onClick={() => takeOver.mutate()}>
                  Continue from the present state
                </Button>
              </Stack>
            </Paper>
          ) : (
            <Problem error={save.error} />
          )}
          <Problem error={wrong ?? takeOver.error} />
        </Stack>
      </form>
      <DeleteApp app={app} path={path} onDeleted={settings.renew} />
    </Stack>
  );
}

function Json({ label, description, value, onChange }: { label: string; description: string; value: string; onChange: (value: string) => void }) {
  return <Textarea label={label} description={description} classNames={{ input: "mono" }} rows={Math.min(10, value.split("\n").length + 1)} value={value} onChange={(e) => onChange(e.currentTarget.value)} />;
}

interface FieldsProps {
  draft: Draft;
  set: (next: Partial<Draft>) => void;
}

function LabelFields({ draft, set }: FieldsProps) {
  const change = (i: number, next: Partial<Draft["labels"][number]>) => set({ labels: draft.labels.map((l, j) => (i === j ? { ...l, ...next } : l)) });
  return (
    <section aria-labelledby="labels">
      <Stack gap="xs">
        <Title order={3} size="h4" id="labels">
          Labels
        </Title>
        {draft.labels.map((l, i) => (
          <Group key={i} gap="xs" role="group" aria-label={`Label ${i + 1}`}>
            <TextInput required aria-label={`Name of label ${i + 1}`} placeholder="tier" value={l.name} onChange={(e) => change(i, { name: e.currentTarget.value })} />
            <TextInput aria-label={`Value of label ${i + 1}`} placeholder="gold" value={l.value} onChange={(e) => change(i, { value: e.currentTarget.value })} />
            <Button size="xs" variant="default" aria-label={`Remove label ${i + 1}`} onClick={() => set({ labels: draft.labels.filter((_, j) => j !== i) })}>
              Remove
            </Button>
          </Group>
        ))}
        <Group>
          <Button size="xs" variant="default" onClick={() => set({ labels: [...draft.labels, { name: "", value: "" }] })}>
            Add a label
          </Button>
        </Group>
      </Stack>
    </section>
  );
}

function LimitFields({ draft, set }: FieldsProps) {
  const change = (i: number, next: Partial<Draft["rate"][number]>) => set({ rate: draft.rate.map((r, j) => (i === j ? { ...r, ...next } : r)) });
  return (
    <section aria-labelledby="limits">
      <Stack gap="xs">
        <Title order={3} size="h4" id="limits">
          Limits
        </Title>
        <Group gap="md" align="flex-start">
          {numbers.map(({ name, label, says, most, otherwise }) => (
            <TextInput
              key={name}
              type="number"
              min={0}
              max={most}
              label={label}
              description={`${says}. At most ${count(most)}; 0 = that of the plan, or ${otherwise}`}
              w={260}
              value={draft.limits[name]}
              onChange={(e) => set({ limits: { ...draft.limits, [name]: e.currentTarget.value } })}
            />
          ))}
        </Group>
        <Text size="sm">
          Rates, at most {mostRates}: how many calls, or tokens of models, are allowed in a window of UTC. Further calls are answered 429.
        </Text>
        {draft.rate.map((r, i) => (
          <Group key={i} gap="xs" align="flex-end" role="group" aria-label={`Rate ${i + 1}`}>
            <TextInput
              type="number"
              required
              min={1}
              max={mostRate}
              label="Most"
              withAsterisk={false}
              aria-label={`Most of rate ${i + 1}`}
              value={r.limit}
              onChange={(e) => change(i, { limit: e.currentTarget.value })}
            />
            <NativeSelect aria-label={`What rate ${i + 1} counts`} data={rateTypes.map((value) => ({ value, label: value === "count" ? "calls" : "tokens" }))} value={r.type} onChange={(e) => change(i, { type: e.currentTarget.value as Rate["type"] })} />
            <NativeSelect aria-label={`Window of rate ${i + 1}`} data={rateWindows.map((value) => ({ value, label: perWindow(value) }))} value={r.window} onChange={(e) => change(i, { window: e.currentTarget.value as Rate["window"] })} />
            <NativeSelect aria-label={`For what rate ${i + 1} is`} data={ratePer.map((value) => ({ value, label: value === "app" ? "for the app" : `for each ${value}` }))} value={r.per} onChange={(e) => change(i, { per: e.currentTarget.value as Rate["per"] })} />
            {r.per === "agent" && <TextInput aria-label={`Agent of rate ${i + 1}`} placeholder="or one agent" value={r.agent ?? ""} onChange={(e) => change(i, { agent: e.currentTarget.value })} />}
            <Button size="xs" variant="default" aria-label={`Remove rate ${i + 1}`} onClick={() => set({ rate: draft.rate.filter((_, j) => j !== i) })}>
              Remove
            </Button>
          </Group>
        ))}
        <Group>
          <Button size="xs" variant="default" disabled={draft.rate.length >= mostRates} onClick={() => set({ rate: [...draft.rate, { per: "app", type: "count", window: "minute", limit: "" }] })}>
            Add a rate
          </Button>
        </Group>
      </Stack>
    </section>
  );
}

function GrantFields({ draft, set }: FieldsProps) {
  const give = (name: string, given: boolean) => {
    const { [name]: _, ...others } = draft.grants;
    set({ grants: given ? { ...draft.grants, [name]: "" } : others });
  };
  return (
    <section aria-labelledby="grants">
      <Stack gap="xs">
        <Title order={3} size="h4" id="grants">
          Grants
        </Title>
        <Text size="sm">What the app's configuration may do with the host and the operator's means. Without a grant it may not.</Text>
        {grants.map(({ name, allows, folders }) => (
          <div key={name}>
            <Checkbox label={name} description={allows} checked={name in draft.grants} onChange={(e) => give(name, e.currentTarget.checked)} />
            {folders && name in draft.grants && (
              <Textarea
                ml="xl"
                mt={4}
                label={`Folders of ${name}`}
                description={`Absolute paths, one a line, at most ${mostFolders}`}
                placeholder="/srv/acme"
                required
                withAsterisk={false}
                classNames={{ input: "mono" }}
                rows={2}
                value={draft.grants[name]}
                onChange={(e) => set({ grants: { ...draft.grants, [name]: e.currentTarget.value } })}
              />
            )}
          </div>
        ))}
      </Stack>
    </section>
  );
}

function DeleteApp({ app, path, onDeleted }: { app: App; path: string; onDeleted: () => void }) {
  const navigate = useNavigate();
  const [typed, setTyped] = useState("");
  const remove = useMutation({
    mutationFn: () => change("DELETE", path, app.etag ? { ifMatch: app.etag } : {}),
    onSuccess: () => {
      onDeleted();
      return navigate({ to: "/apps" });
    },
  });
  return (
    <>
      <Title order={3} size="h4">
        Delete the app
      </Title>
      <Text size="sm">Its tasks, documents, secrets, keys and revisions are deleted for good. Its invoices and its audit trail stay.</Text>
      <Group gap="xs" align="flex-end">
        <TextInput label={`Type ${app.name} to delete it`} autoComplete="off" value={typed} onChange={(e) => setTyped(e.currentTarget.value)} />
        <Button color="red" disabled={typed !== app.name} loading={remove.isPending} onClick={() => remove.mutate()}>
          Delete the app
        </Button>
      </Group>
      <Problem error={remove.error} />
    </>
  );
}
