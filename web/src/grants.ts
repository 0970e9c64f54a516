import type { Schema } from "./api";

// Grant is a power over the host that the operator gives an app.
interface Grant {
  name: string;
  // allows says what an app with the grant may do.
  allows: string;
  // folders says that the grant reaches the folders that are named with it, and nothing without them.
  folders?: boolean;
}

// grants are all powers, as docs/configuration.md has them.
export const grants: Grant[] = [
  { name: "operator_models", allows: "Use models without an API key of its own, at the operator's cost" },
  { name: "private_network", allows: "Call addresses of private networks, also by http" },
  { name: "stdio", allows: "Start MCP servers as programs of this host, confined" },
  { name: "filesystem", allows: "Read and write files in these folders of this host", folders: true },
  { name: "sqlite", allows: "Open SQLite files in the folders of filesystem to which no program of an app can write" },
  { name: "command", allows: "Run programs of this host in these folders, confined", folders: true },
];

// mostFolders is how many folders a grant may have.
export const mostFolders = 32;

// splitGrant returns the name and the folders of a grant as the API writes it.
export function splitGrant(grant: Schema["Grants"][number]): [name: string, folders: string[]] {
  return typeof grant === "string" ? [grant, []] : (Object.entries(grant)[0] ?? ["", []]);
}
