// The graph of an app's agents: which sub-agents, tools, document stores and models each uses. It is loaded when it is opened.
import "@xyflow/react/dist/style.css";
import { Graph as Layout, layout } from "@dagrejs/dagre";
import { Skeleton, Stack, Table, Text, useComputedColorScheme } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Background, Controls, MarkerType, Position, ReactFlow, type Edge, type Node } from "@xyflow/react";
import { useMemo } from "react";
import { get } from "./api";
import { Rows } from "./lists";
import { Empty, Problem } from "./parts";
import { session } from "./session";

type Kind = "agent" | "tool" | "store" | "model";

// Link is a use: from uses to.
interface Link {
  from: string;
  to: string;
  how: string;
}

interface AgentConfig {
  type?: string;
  llm?: string;
  tools?: string[];
  sub_agents?: string[];
  agent_tools?: string[];
  document_stores?: string[];
}

interface AppConfig {
  defaults?: { llm?: string };
  agents?: Record<string, AgentConfig | null>;
}

// mostNodes bounds what is drawn: a larger graph is no longer read as a picture, and the table below it has all.
const mostNodes = 300;

const size = { width: 190, height: 44 };

const id = (kind: Kind, name: string) => `${kind} ${name}`;

// readLinks returns the kinds of all that a configuration names, and what uses what.
function readLinks(config: AppConfig): { nodes: Map<string, { kind: Kind; name: string; note: string }>; links: Link[] } {
  const nodes = new Map<string, { kind: Kind; name: string; note: string }>();
  const links: Link[] = [];
  const node = (kind: Kind, name: string, note = "") => {
    const key = id(kind, name);
    if (!nodes.has(key) || note) nodes.set(key, { kind, name, note });
    return key;
  };
  for (const [name, agent] of Object.entries(config.agents ?? {})) {
    const type = agent?.type ?? "llm";
    const from = node("agent", name, type === "llm" ? "agent" : type);
    agent?.sub_agents?.forEach((sub, i) => links.push({ from, to: node("agent", sub), how: type === "sequential" ? `step ${i + 1}` : "sub-agent" }));
    for (const sub of agent?.agent_tools ?? []) links.push({ from, to: node("agent", sub), how: "as a tool" });
    for (const tool of agent?.tools ?? []) links.push({ from, to: node("tool", tool), how: "tool" });
    for (const store of agent?.document_stores ?? []) links.push({ from, to: node("store", store), how: "documents" });
    const llm = agent?.llm ?? (type === "llm" ? config.defaults?.llm : undefined);
    if (llm) links.push({ from, to: node("model", llm), how: "model" });
  }
  return { nodes, links };
}

export default function AgentGraph() {
  const who = session.use();
  const config = useQuery({ queryKey: ["graph", who], queryFn: ({ signal }) => get<AppConfig>("/config", signal) });
  const scheme = useComputedColorScheme("light");
  // The picture is fitted to its frame when it is made: a phone that is turned makes another.
  const narrow = useMediaQuery("(max-width: 40rem)", false, { getInitialValueInEffect: false });
  const navigate = useNavigate();
  const read = useMemo(() => readLinks(config.data ?? {}), [config.data]);
  const drawn = useMemo(() => {
    const g = new Layout();
    g.setGraph({ rankdir: "LR", nodesep: 18, ranksep: 80 });
    g.setDefaultEdgeLabel(() => ({}));
    for (const key of read.nodes.keys()) g.setNode(key, { ...size });
    for (const l of read.links) g.setEdge(l.from, l.to);
    layout(g);
    const nodes: Node[] = [...read.nodes].map(([key, n]) => {
      const { x, y } = g.node(key);
      return {
        id: key,
        position: { x: x - size.width / 2, y: y - size.height / 2 },
        data: { label: `${n.name}${n.kind === "agent" && n.note !== "agent" ? ` (${n.note})` : ""}` },
        className: `node ${n.kind}`,
        sourcePosition: Position.Right,
        targetPosition: Position.Left,
        style: size,
        ariaLabel: `${n.note || n.kind} ${n.name}`,
      };
    });
    const edges: Edge[] = read.links.map((l, i) => ({ id: String(i), source: l.from, target: l.to, label: l.how, markerEnd: { type: MarkerType.ArrowClosed } }));
    return { nodes, edges };
  }, [read]);
  if (config.isPending) return <Skeleton height={420} />;
  if (config.error) return <Problem error={config.error} retry={() => void config.refetch()} />;
  if (read.nodes.size === 0) return <Empty title="There is nothing to draw">The configuration names no agent.</Empty>;
  return (
    <Stack>
      {read.nodes.size <= mostNodes ? (
        <div className="graph" role="group" aria-label="Graph of agents">
          <ReactFlow
            key={String(narrow)}
            nodes={drawn.nodes}
            edges={drawn.edges}
            colorMode={scheme}
            fitView
            minZoom={0.1}
            nodesDraggable={false}
            nodesConnectable={false}
            deleteKeyCode={null}
            proOptions={{ hideAttribution: true }}
            onNodeClick={(_, n) => n.id.startsWith("agent ") && void navigate({ to: "/agents/$agent", params: { agent: n.id.slice("agent ".length) } })}
          >
            <Background />
            <Controls showInteractive={false} />
          </ReactFlow>
        </div>
      ) : (
        <Text c="dimmed">
          {read.nodes.size} agents, tools, stores and models are too many for a picture. The table has them.
        </Text>
      )}
      <Rows label="Uses" head={["Agent", "Uses", "As"]}>
        {read.links.map((l, i) => (
          <Table.Tr key={i}>
            <Table.Td>{read.nodes.get(l.from)?.name}</Table.Td>
            <Table.Td>{read.nodes.get(l.to)?.name}</Table.Td>
            <Table.Td>{l.how}</Table.Td>
          </Table.Tr>
        ))}
      </Rows>
    </Stack>
  );
}
