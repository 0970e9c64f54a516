import { Badge, Button, Group, Paper, Skeleton, Stack, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { lazy, Suspense } from "react";
import { get, type Card, type CardList } from "./api";
import { defaultApp, useCaller, useMay, useMayCall } from "./caller";
import { Empty, Json, Problem } from "./parts";
import { session } from "./session";

const AgentGraph = lazy(() => import("./graph"));

// agentId returns the name under which an agent is called: its card has a name for humans, its address ends with the id.
export function agentId(card: Card): string {
  return decodeURIComponent(card.url.split("/").at(-1) ?? card.name);
}

export function useAgents() {
  const who = session.use();
  return useQuery({ queryKey: ["agents", who], queryFn: ({ signal }) => get<CardList>("/agents", signal), enabled: !who?.operator, placeholderData: keepPreviousData });
}

// Agents shows the agents as cards, and as a graph of what they use to those who may read the app's configuration.
export function Agents() {
  const search = useSearch({ from: "/agents" });
  const caller = useCaller();
  const drawable = useMay("config:read") && caller.data?.app !== defaultApp;
  const view = drawable ? search.view : undefined;
  const navigate = useNavigate();
  return (
    <Stack>
      <Group justify="space-between">
        <Title order={2}>Agents</Title>
        {drawable && (
          <Button variant="default" onClick={() => void navigate({ to: "/agents", search: view === "graph" ? {} : { view: "graph" } })}>
            {view === "graph" ? "Cards" : "Graph"}
          </Button>
        )}
      </Group>
      {view === "graph" ? (
        <Suspense fallback={<Skeleton height={420} />}>
          <AgentGraph />
        </Suspense>
      ) : (
        <Cards />
      )}
    </Stack>
  );
}

function Cards() {
  const { data, error, refetch, isPending } = useAgents();
  const mayCall = useMayCall();
  return (
    <>
      <Problem error={error} retry={() => void refetch()} />
      {isPending && <Skeleton height={90} />}
      {data?.agents.length === 0 && (
        <Empty title="There are no agents yet" command={"agents:\n  assistant:\n    llm: demo"}>
          Add one to the app's configuration:
        </Empty>
      )}
      <div className="cards">
        {data?.agents.map((card) => (
          <Paper withBorder p="md" key={card.url} component="article">
            <Stack gap="xs" h="100%">
              <Group justify="space-between">
                <Link to="/agents/$agent" params={{ agent: agentId(card) }} className="name">
                  {card.name}
                </Link>
                <Text size="xs" c="dimmed">
                  {card.version}
                </Text>
              </Group>
              <Text size="sm" className="grow">{card.description}</Text>
              <Group gap="xs">
                {card.skills.flatMap((s) => s.tags).map((tag, i) => (
                  <Badge key={i} variant="light" color="gray" tt="none">
                    {tag}
                  </Badge>
                ))}
              </Group>
              <Group gap="xs">
                {mayCall(agentId(card)) && <Link to="/playground" search={{ agent: agentId(card) }}>Try it</Link>}
                <Link to="/tasks" search={{ agent: agentId(card) }}>Its tasks</Link>
              </Group>
            </Stack>
          </Paper>
        ))}
      </div>
    </>
  );
}

export function Agent() {
  const { agent } = useParams({ from: "/agents/$agent" });
  const who = session.use();
  const mayCall = useMayCall();
  const mayRead = useMay("config:read");
  const card = useQuery({
    queryKey: ["agent", who, agent],
    queryFn: ({ signal }) => get<Card>(`/agents/${encodeURIComponent(agent)}`, signal),
  });
  return (
    <Stack>
      <Group justify="space-between">
        <Title order={2}>{card.data?.name ?? agent}</Title>
        <Group gap="xs">
          {mayRead && (
            <Button component={Link} to="/config" variant="default">
              Configuration
            </Button>
          )}
          {card.data && mayCall(agent) && (
            <Button component={Link} to="/playground" search={{ agent } as never}>
              Try it
            </Button>
          )}
        </Group>
      </Group>
      <Problem error={card.error} retry={() => void card.refetch()} />
      {card.isPending && <Skeleton height={90} />}
      {card.data && (
        <>
          <Text>{card.data.description}</Text>
          <dl className="facts">
            <dt>Name in calls</dt>
            <dd>{agent}</dd>
            <dt>Address</dt>
            <dd>{card.data.url}</dd>
            <dt>Version</dt>
            <dd>{card.data.version}</dd>
            <dt>Takes</dt>
            <dd>{card.data.default_input_modes.join(", ")}</dd>
            <dt>Answers</dt>
            <dd>{card.data.default_output_modes.join(", ")}</dd>
          </dl>
          <details>
            <summary>Card as JSON</summary>
            <Json value={card.data} />
          </details>
        </>
      )}
    </Stack>
  );
}
